"""Jobs on the source and sink of the pipeline, each runnable by `tidelog pipeline run` and by `spark-submit`."""

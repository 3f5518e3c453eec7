"""The page that draws a cluster and its protocol events; docs/internals/page.md has the messages that it is sent."""

"""The histories and replica logs of chaos runs, judged with the checker's rules as DataFrame code (reliability 1.2 to 1.7)."""

"""Judges a history by Jepsen's rules for Kafka (reliability 1.3 to 1.5) and those added to them (1.6). Pure, and linear."""

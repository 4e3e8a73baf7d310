"""Libraries that trainers are built with: each file here knows one, and imports it only when it is used."""

"""What Elixir did, recorded line by line in `otp_oracle.txt`, and what this runtime does in the same place."""

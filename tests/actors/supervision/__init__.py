"""What supervisors do, told three times: by OTP (recorded), by a dumb model, and by the supervisors themselves."""

"""Mail for development: a small SMTP server on loopback that keeps what it is sent in a folder, and sends nothing on.

receiver.py takes the mail, mailbox.py keeps it. `windlass up` runs it, the API and `windlass mail` show what was caught.
"""

"""Messages to users: the logs that their jobs name, and mail at the end of a job. Depends on `core` and `files`.

reporting.py  appends events to users' logs, and sends notices
event_log.py  the events that a log lacks after a crash
"""

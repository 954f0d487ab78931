"""The files of jobs on the submit side. Depends on `core` and `checkpoints`.

remote_io.py       answers the file system of a job that works on its owner's files from elsewhere
output_streams.py  `stream_output`: appends a running job's output to its file on the submit side
spool.py           inputs of jobs that were submitted from another machine; spool_outputs.py: their outputs
spool_methods.py   the methods about spooled files
"""

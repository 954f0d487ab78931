"""The program `poolnode`: a node when it is given roles, otherwise the user's tool.

Every subcommand lives in a module of its own that is imported only when it is called. A listing of ten thousand jobs
must take half a second, and it needs only little of what the package imports.
"""

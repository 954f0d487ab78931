"""The program `poolnode`: a node when it is given roles, otherwise the user's tool.

Every subcommand lives in a module of its own that is imported only when it is called: a listing of ten
thousand jobs has half a second, and most of what the package needs elsewhere is not needed for that.
"""

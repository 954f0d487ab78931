"""The submit side's care for one running job: its files, and what of them goes where and when (EV 2.2).

Everything here touches a user's files with that user's rights and no others (B5).
"""

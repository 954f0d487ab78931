"""Work flows: graphs of jobs whose nodes are queued as their parents end.

`workflows` knows all of them and whose event is whose, `workflow` carries out what one of them decides
(`pool.policy.workflow`), `records` names what the store keeps, `written_files` writes what users and tools read,
`methods` is served.
"""

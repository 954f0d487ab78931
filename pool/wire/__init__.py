"""How nodes and tools speak to each other: one protocol over TLS, unix sockets, memory and within a process.

    network      connect and listen            connection, stream     calling
    joined_streams  two streams as one
    dispatch     serving                       identity               who is there and what that allows
    protocol     the sans-I/O core (frames, states, bounds, events beside it)
    authority, credentials, tokens, join       trust; imported by name, since `cryptography` costs start-up
    time

It does not know what a job is.
"""

from pool.wire.addresses import BadAddress, parse_address
from pool.wire.connection import Connection
from pool.wire.dispatch import Call, Dispatcher, Service, method, streaming
from pool.wire.endpoint import WireConnection
from pool.wire.errors import (
    CannotConnect,
    ConnectionLost,
    DeadlineExceeded,
    LocalFault,
    NoSuchMethod,
    NoSuchRole,
    NotPermitted,
    RemoteError,
    RemoteFault,
    WireError,
)
from pool.wire.identity import (
    ALL_RIGHTS,
    ANONYMOUS,
    Identity,
    Right,
    node_identity,
    own_identity,
    peer_identity,
    user_identity,
)
from pool.wire.local import LocalConnection
from pool.wire.network import CannotListen, Listening, Network, RealNetwork, Server
from pool.wire.stream import Stream

__all__ = [
    "ALL_RIGHTS",
    "ANONYMOUS",
    "BadAddress",
    "Call",
    "CannotConnect",
    "CannotListen",
    "Connection",
    "ConnectionLost",
    "DeadlineExceeded",
    "Dispatcher",
    "Identity",
    "Listening",
    "LocalConnection",
    "LocalFault",
    "Network",
    "NoSuchMethod",
    "NoSuchRole",
    "NotPermitted",
    "RealNetwork",
    "RemoteError",
    "RemoteFault",
    "Right",
    "Server",
    "Service",
    "Stream",
    "WireConnection",
    "WireError",
    "method",
    "node_identity",
    "own_identity",
    "parse_address",
    "peer_identity",
    "streaming",
    "user_identity",
]

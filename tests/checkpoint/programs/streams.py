"""A server and clients of asyncio, in processes of their own: an epoll each, and connections that stay full."""

import asyncio
import hashlib
import os
import socket

CLIENTS, ROUNDS = 8, 300


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            size = int.from_bytes(await reader.readexactly(4), "big")
            data = await reader.readexactly(size)
            writer.write(hashlib.sha256(data).digest() + data)
            await writer.drain()
    except asyncio.IncompleteReadError:
        writer.close()


async def client(port: int, number: int, sums: list[bytes]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for round in range(ROUNDS):
        data = bytes([(number * 37 + round) % 256]) * ((number + 1) * round * 97 % 200000 + 1)
        writer.write(len(data).to_bytes(4, "big") + data)
        digest = await reader.readexactly(32)
        assert await reader.readexactly(len(data)) == data
        assert digest == hashlib.sha256(data).digest()
        sums[number] = hashlib.sha256(sums[number] + digest).digest()
        if number == 0:
            print(round, sums[0].hex(), flush=True)
    writer.close()


async def main(port: int) -> None:
    sums = [b""] * CLIENTS
    await asyncio.gather(*(client(port, number, sums) for number in range(CLIENTS)))
    print(hashlib.sha256(b"".join(sums)).hexdigest(), flush=True)


listening = socket.create_server(("127.0.0.1", 0))
child = os.fork()
if not child:

    async def serve() -> None:
        server = await asyncio.start_server(answer, sock=listening)
        await server.serve_forever()

    asyncio.run(serve())
port = listening.getsockname()[1]
listening.close()
asyncio.run(main(port))
os.kill(child, 15)
os.wait()

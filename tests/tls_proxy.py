"""TLS in front of a server that speaks none, as a load balancer before a store does it."""

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.certificates import Authority


@contextmanager
def tls_before(port: int, authority: Authority) -> Iterator[int]:
    """A port on 127.0.0.1 that speaks TLS and passes on to `port`, for the length of the block."""
    certificate, key = authority.issue("store")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="tls-proxy")
    thread.start()
    server = asyncio.run_coroutine_threadsafe(_serve(port, context), loop).result(10)
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        asyncio.run_coroutine_threadsafe(_stop(server), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _serve(port: int, context: ssl.SSLContext) -> asyncio.Server:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(_pass_on(reader, inner_writer), _pass_on(inner_reader, writer))

    return await asyncio.start_server(connected, "127.0.0.1", 0, ssl=context)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def _stop(server: asyncio.Server) -> None:
    server.close()
    tasks = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

# An SMTP server that answers each mail with the mail's last line, and throws the mail away.
import asyncio

from aiosmtpd.smtp import SMTP


class Handler:
    async def handle_DATA(self, server, session, envelope):
        return "250 " + envelope.content.decode().strip().splitlines()[-1]


async def main():
    loop = asyncio.get_running_loop()
    new = lambda: SMTP(Handler(), hostname="localhost", loop=loop)
    server = await loop.create_server(new, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(main())

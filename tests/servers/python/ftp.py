# An FTP server, to whose current directory everybody may write.
import logging

from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import FTPHandler
from pyftpdlib.servers import FTPServer

logging.basicConfig(level=logging.ERROR)
FTPHandler.authorizer = DummyAuthorizer()
FTPHandler.authorizer.add_anonymous(".", perm="elradfmwMT")
# Uploads of anonymous users get a warning, which fails nothing.
server = FTPServer(("127.0.0.1", 0), FTPHandler, backlog=1024)
server.max_cons = 4096
server.max_cons_per_ip = 0
print(server.address[1], flush=True)
server.serve_forever()

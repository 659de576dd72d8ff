"""A shop as an agent meets it: HTTP on port 8080, its orders in a file beside it. Started by run.mjs, outside of the agent's view."""
import json
import pathlib
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ORDERS = pathlib.Path(__file__).with_name("orders.json")


class Shop(BaseHTTPRequestHandler):
    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        customer = urllib.parse.parse_qs(url.query).get("customer", [""])[0]
        orders = json.loads(ORDERS.read_text())
        found = [order for order in orders if order["customer"] == customer]
        if url.path != "/orders" or not found:
            self.send_error(404)
            return
        body = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Customers are nobody's business."""


ThreadingHTTPServer(("", 8080), Shop).serve_forever()

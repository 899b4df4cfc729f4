"""A product in another language: it writes a row of its own and a job in one
transaction of its own, which it commits or rolls back. It speaks libpq through ctypes,
so that it needs no package: python3 door.py ADDRESS.
"""

import ctypes
import ctypes.util
import json
import sys

COMMAND_OK, TUPLES_OK = 1, 2


class Connection:
    def __init__(self, address):
        self.pq = ctypes.CDLL(ctypes.util.find_library("pq") or "libpq.so.5")
        for name, result in {"PQconnectdb": ctypes.c_void_p, "PQexecParams": ctypes.c_void_p, "PQerrorMessage": ctypes.c_char_p,
                             "PQgetvalue": ctypes.c_char_p, "PQresultErrorMessage": ctypes.c_char_p}.items():
            getattr(self.pq, name).restype = result
        self.conn = ctypes.c_void_p(self.pq.PQconnectdb(address.encode()))
        if self.pq.PQstatus(self.conn) != 0:
            raise RuntimeError(self.pq.PQerrorMessage(self.conn).decode())

    def execute(self, sql, *params):
        values = (ctypes.c_char_p * len(params))(*(None if p is None else str(p).encode() for p in params))
        result = ctypes.c_void_p(self.pq.PQexecParams(self.conn, sql.encode(), len(params), None, values, None, None, 0))
        try:
            if self.pq.PQresultStatus(result) not in (COMMAND_OK, TUPLES_OK):
                raise RuntimeError(self.pq.PQresultErrorMessage(result).decode())
            return self.pq.PQgetvalue(result, 0, 0).decode() if self.pq.PQntuples(result) else None
        finally:
            self.pq.PQclear(result)


def place(db, order_id, end):
    db.execute("BEGIN")
    db.execute("INSERT INTO orders (id) VALUES ($1)", order_id)
    job = db.execute("SELECT enqueue_job(type => 'send_receipt', payload => $1::jsonb, queue => 'mail', priority => 3, "
                     "idempotency_key => $2)", json.dumps({"order_id": order_id, "to": "é\"@example.com"}), f"receipt-{order_id}")
    db.execute(end)
    return job


def main():
    db = Connection(sys.argv[1])
    kept = place(db, 8123, "COMMIT")
    place(db, 8124, "ROLLBACK")
    db.execute("BEGIN")
    again = db.execute("SELECT enqueue_job('send_receipt', $1::jsonb, 'mail', 3, idempotency_key => 'receipt-8123')",
                       json.dumps({"to": "é\"@example.com", "order_id": 8123}))
    db.execute("COMMIT")
    refused = ""
    try:
        db.execute("BEGIN")
        db.execute("SELECT enqueue_job('send_receipt', queue => 'no such name!')")
    except RuntimeError as e:
        refused = str(e)
    db.execute("ROLLBACK")
    print(json.dumps({"kept": kept, "again": again, "refused": refused}))


main()

"""Calls Liminator's functions through thriftpy2, one JSON object a line; prints what came of each, one line each."""

import json
import pathlib
import sys

import thriftpy2
from thriftpy2.http import THttpHeaderFactory, make_client
from thriftpy2.protocol import TBinaryProtocolFactory

idl = str(pathlib.Path(__file__).parent / "liminator.thrift")
liminator = thriftpy2.load(idl, module_name="liminator_thrift")
host, port, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
TRACE = {"woody.trace-id": "trace", "woody.span-id": "span", "woody.parent-id": "parent"}


def change(given):
    return liminator.LimitChange(
        limit_id=given.get("limit_id"),
        limit_name=given["limit_name"],
        value=given["value"],
        context=given.get("context"),
    )


def argument(command):
    if "limit_names" in command:
        return command["limit_names"]
    changes = [change(given) for given in command["changes"]]
    return liminator.LimitRequest(operation_id=command["operation_id"], limit_changes=changes)


def value(response):
    return {
        "limit_id": response.limit_id,
        "limit_name": response.limit_name,
        "commit_value": response.commit_value,
        "total_value": response.total_value,
    }


for line in sys.stdin:
    command = json.loads(line)
    strict = command.get("strict", True)
    client = make_client(
        liminator.LiminatorService,
        host,
        port,
        path=path,
        proto_factory=TBinaryProtocolFactory(strict_read=strict, strict_write=strict),
        http_header_factory=THttpHeaderFactory(TRACE),
    )
    try:
        result = getattr(client, command["call"])(argument(command))
        told = {"result": [value(one) for one in result] if result is not None else None}
    except Exception as error:
        told = {"exception": type(error).__name__}
    finally:
        client.close()
    print(json.dumps(told), flush=True)

"""Drops generated requests that break a limit that JSON Schema cannot express.

The document states most of these limits with keywords of its own (crates/api/src/schema.rs). Each function below says what
it excludes and why a schema cannot say it.
"""

import json
import re

import schemathesis

UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}


def resolve(schema, root):
    while "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        schema = root["components"]["schemas"][name]
    return schema


def millis(text):
    """The length of a duration; None if the text is not one."""
    parts = re.findall(r"([0-9]+)(ms|d|h|m|s)", text)
    return sum(int(number) * UNITS[unit] for number, unit in parts) if parts else None


def number(text):
    try:
        return int(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            return None


def keeps_keywords(schema, value, root):
    """Whether the value keeps the limits of the document's own keywords, here and in all parts of it."""
    schema = resolve(schema, root)
    # To JSON Schema, 1.0 is an integer. The server reads a number with a point as a float.
    if isinstance(value, float) and schema.get("type") in ("integer", ["integer", "null"]):
        return False
    if isinstance(value, str):
        # `maxLength` counts characters, the server counts bytes of UTF-8.
        if len(value.encode(errors="surrogatepass")) > schema.get("x-max-bytes", len(value) * 4):
            return False
        # A pattern could not compare the number inside a string with a range.
        if "x-range-ms" in schema:
            least, most = schema["x-range-ms"]
            length = millis(value)
            if length is not None and not least <= length <= most:
                return False
        if schema.get("x-number-range"):
            least, most = schema["x-number-range"]
            found = number(value)
            if found is not None and not least <= found <= most:
                return False
    # To JSON Schema, 1e20 and 100000000000000000000 are the same number. The server reads the first as a float.
    if isinstance(value, int) and not isinstance(value, bool) and "x-integer-range" in schema:
        least, most = schema["x-integer-range"]
        if not least <= value <= most:
            return False
    if isinstance(value, list):
        # `uniqueItems` compares whole items, not one field of them.
        if "x-unique-by" in schema:
            field = schema["x-unique-by"]
            # The name of a check is optional. Those without a name do not differ, and need not.
            named = [item.get(field) for item in value if isinstance(item, dict) and item.get(field) is not None]
            keys = [json.dumps(name, sort_keys=True) for name in named]
            if len(set(keys)) < len(keys):
                return False
        if not all(keeps_keywords(schema.get("items", {}), item, root) for item in value):
            return False
    if isinstance(value, dict):
        # A schema for each choice of names would be a schema for each combination of choices.
        for choice in schema.get("x-at-most-one", []):
            if sum(value.get(name) is not None for name in choice) > 1:
                return False
        others = schema.get("additionalProperties")
        for key, part in value.items():
            if not keeps_keywords(schema.get("propertyNames", {}), key, root):
                return False
            inner = schema.get("properties", {}).get(key, others if isinstance(others, dict) else {})
            if not keeps_keywords(inner, part, root):
                return False
    forms = schema.get("oneOf", []) + schema.get("anyOf", []) + schema.get("allOf", [])
    return all(keeps_keywords(form, value, root) for form in forms if fits(resolve(form, root), value))


def fits(schema, value):
    """Whether a form of a `oneOf` may be meant: its type, and the fixed words of its fields."""
    kinds = {"string": str, "integer": (int, float), "number": (int, float), "boolean": bool, "object": dict, "array": list}
    wanted = schema.get("type")
    if isinstance(wanted, str) and wanted in kinds and not isinstance(value, kinds[wanted]):
        return False
    if isinstance(value, dict):
        for field, part in schema.get("properties", {}).items():
            if "enum" in part and field in value and value[field] not in part["enum"]:
                return False
    return True


def parts_and_depth(query):
    """How many queries a query contains with itself, and how deep they are nested."""
    inner = [part for name in ("any", "all") for part in (query.get(name) or []) if isinstance(part, dict)]
    sizes = [parts_and_depth(part) for part in inner]
    return 1 + sum(parts for parts, _ in sizes), 1 + max((depth for _, depth in sizes), default=0)


def keeps_body_limits(operation, body):
    content = operation.definition.raw.get("requestBody", {}).get("content", {})
    schema = next((media.get("schema") for media in content.values()), None)
    if schema is None:
        return True
    # A schema cannot count the queries inside a query: at most 64 in all, 8 deep.
    if operation.path.endswith("/query") and isinstance(body, dict):
        parts, depth = parts_and_depth(body)
        if parts > 64 or depth > 8:
            return False
    return keeps_keywords(schema, body, operation.schema.raw_schema)


def keeps_parameter_limits(operation, path_parameters, query):
    # Names have at most 256 bytes of UTF-8; see `x-max-bytes`.
    texts = [value for value in [*path_parameters.values(), *query.values()] if isinstance(value, str)]
    if any(len(text.encode(errors="surrogatepass")) > 256 for text in texts):
        return False
    # A session is required to release a lock or a lease, unless the release is forced. Parameters cannot depend on each other.
    if operation.method.upper() == "DELETE" and operation.path.endswith(("/locks/{lock_id}", "/leases/{lease_id}")):
        return "session_id" in query or str(query.get("force")).lower() == "true"
    # The `next` of a page of the audit has a form of its own. Clients do not make one up.
    if operation.path.endswith("/audit"):
        return "after" not in query
    # The limits nearest to their ceilings have one page. Parameters cannot exclude each other.
    if operation.path.endswith("/ledger/limits"):
        return not ("order" in query and "after" in query)
    return True


def waits_long(case):
    # A request for locks or a decision may wait for five minutes for another request. The limit is the same for short waits.
    waiting = ("/locks", "/decisions")
    if case.method.upper() != "POST" or not case.operation.path.endswith(waiting) or not isinstance(case.body, dict):
        return False
    wait = case.body.get("wait") or case.body.get("wait_ms")
    length = millis(wait) if isinstance(wait, str) else wait
    return isinstance(length, (int, float)) and length > 1_000


def waits_in_batch(case):
    # A batch has the schema of single decisions, but its items must not wait.
    if not case.operation.path.endswith("/decisions/batch") or not isinstance(case.body, dict):
        return False
    items = [item for item in case.body.get("operations") or [] if isinstance(item, dict)]
    return any(item.get("wait") or item.get("wait_ms") for item in items)


def keeps_name(case):
    # In a PUT the name in the body must be the name in the path. A schema cannot compare them.
    if case.method.upper() != "PUT" or not isinstance(case.body, dict) or case.body.get("name") is None:
        return True
    named = [case.path_parameters[word] for word in ("override", "name", "stream") if word in (case.path_parameters or {})]
    return not named or case.body["name"] == named[0]


def keeps_limits(case):
    operation = case.operation
    return (
        keeps_body_limits(operation, case.body)
        and keeps_parameter_limits(operation, case.path_parameters or {}, case.query or {})
        and keeps_name(case)
        and not waits_long(case)
        and not waits_in_batch(case)
    )


@schemathesis.hook
def filter_case(context, case):
    return keeps_limits(case)


@schemathesis.hook
def before_add_examples(context, examples):
    # An example is made of the examples of all fields, also of those that exclude each other.
    examples[:] = [case for case in examples if keeps_limits(case)]

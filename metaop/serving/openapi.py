"""The description of the server's endpoints in the format of OpenAPI 3.1."""

from __future__ import annotations

from typing import Any

from metaop.serving.datatypes import NAMES
from metaop.version import __version__

_NAME = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
_VERSION = {**_NAME, "name": "version"}


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": properties}


_TEXT: dict[str, Any] = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_SHAPE = {"type": "array", "items": {"type": "integer"}}
_DATA = {
    "type": "array",
    "description": "elements row by row, flat or nested as the shape says; may be NaN or Infinity",
    "items": {},
}


def _reference(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _list_of(name: str) -> dict[str, Any]:
    return {"type": "array", "items": _reference(name)}


_SCHEMAS = {
    "Error": _object(["error"], error=_TEXT),
    "Datatype": {"type": "string", "enum": list(NAMES.values())},
    "Server": _object(
        ["name", "version", "extensions"], name=_TEXT, version=_TEXT, extensions=_TEXTS
    ),
    "Live": _object(["live"], live={"type": "boolean"}),
    "Ready": _object(["ready"], name=_TEXT, ready={"type": "boolean"}),
    "TensorMetadata": _object(
        ["name", "datatype", "shape"], name=_TEXT, datatype=_reference("Datatype"), shape=_SHAPE
    ),
    "Model": _object(
        ["name", "versions", "platform", "inputs", "outputs"],
        name=_TEXT,
        versions=_TEXTS,
        platform=_TEXT,
        inputs=_list_of("TensorMetadata"),
        outputs=_list_of("TensorMetadata"),
    ),
    "Configuration": _object(
        ["name", "platform", "max_batch_size", "input", "output"],
        name=_TEXT,
        platform=_TEXT,
        max_batch_size={"type": "integer"},
        input={"type": "array", "items": {"type": "object"}},
        output={"type": "array", "items": {"type": "object"}},
        dynamic_batching={"type": "object"},
    ),
    "InputTensor": _object(
        ["name", "datatype", "shape"],
        name=_TEXT,
        datatype=_reference("Datatype"),
        shape=_SHAPE,
        data=_DATA,
        parameters=_object([], binary_data_size={"type": "integer"}),
    ),
    "RequestedOutput": _object(
        ["name"], name=_TEXT, parameters=_object([], binary_data={"type": "boolean"})
    ),
    "InferenceRequest": _object(
        ["inputs"],
        id=_TEXT,
        parameters=_object([], binary_data_output={"type": "boolean"}),
        inputs=_list_of("InputTensor"),
        outputs=_list_of("RequestedOutput"),
    ),
    "InferenceResponse": _object(
        ["model_name", "model_version", "outputs"],
        model_name=_TEXT,
        model_version=_TEXT,
        id=_TEXT,
        outputs=_list_of("InputTensor"),
    ),
    "GenerationRequest": _object(
        ["tokens", "count"],
        tokens={"type": "array", "items": {"type": "integer"}},
        count={"type": "integer"},
        temperature={"type": "number"},
        top_k={"type": "integer"},
        seed={"type": "integer"},
        end={"type": "integer"},
    ),
    "IndexRequest": _object([], ready={"type": "boolean"}),
    "Index": {
        "type": "array",
        "items": _object(
            ["name", "version", "state", "reason"],
            name=_TEXT,
            version=_TEXT,
            state=_TEXT,
            reason=_TEXT,
        ),
    },
    "Nothing": {"type": "object"},
}
_ERRORS = {
    "400": "the request does not match the model",
    "403": "the server was started without --allow-control",
    "404": "there is no such model or version",
    "408": "the body did not come in time",
    "413": "the body is too large",
    "415": "the body is encoded",
    "429": "the server holds its maximum of requests: see Retry-After",
    "503": "there is no memory left",
}


def _json(schema: str) -> dict[str, Any]:
    return {"application/json": {"schema": _reference(schema)}}


def _operation(
    name: str, summary: str, answer: str, errors: str = "", body: str = "", binary: bool = False
) -> dict[str, Any]:
    content = _json(answer)
    found: dict[str, Any] = {"operationId": name, "summary": summary}
    if body:
        found["requestBody"] = {"required": binary, "content": _json(body)}
    if binary:
        octets = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        content = {**content, **octets}
        found["requestBody"]["content"].update(octets)
    found["responses"] = {"200": {"description": "done", "content": content}}
    found["responses"].update(_errors(errors))
    return found


def _errors(statuses: str) -> dict[str, Any]:
    return {
        status: {"description": _ERRORS[status], "content": _json("Error")}
        for status in statuses.split()
    }


def _text_operation(name: str, summary: str, kind: str) -> dict[str, Any]:
    content: dict[str, Any] = {kind: {"schema": {}}}
    answers: dict[str, Any] = {"200": {"description": "done", "content": content}}
    return {"operationId": name, "summary": summary, "responses": answers}


def description() -> dict[str, Any]:
    """The description, as plain data."""
    paths: dict[str, Any] = {
        "/v2": {"get": _operation("server", "What this server is", "Server")},
        "/v2/health/live": {"get": _operation("live", "Whether the server runs", "Live")},
        "/v2/health/ready": {"get": _operation("ready", "Whether all models are loaded", "Ready")},
        "/v2/repository/index": {
            "post": _operation("index", "All models", "Index", "400", "IndexRequest")
        },
        "/metrics": {"get": _text_operation("metrics", "Counts for Prometheus", "text/plain")},
        "/openapi.json": {"get": _text_operation("openapi", "This text", "application/json")},
    }
    for action in ("load", "unload"):
        paths[f"/v2/repository/models/{{name}}/{action}"] = {
            "parameters": [_NAME],
            "post": _operation(action, f"To {action} a model", "Nothing", "400 403 404", "Nothing"),
        }
    for path, parameters, end in (
        ("/v2/models/{name}", [_NAME], ""),
        ("/v2/models/{name}/versions/{version}", [_NAME, _VERSION], "Version"),
    ):
        of_model = {
            "": _operation("model" + end, "What a model takes and gives", "Model", "404"),
            "/ready": _operation("modelReady" + end, "Whether it is loaded", "Ready", "404"),
            "/config": _operation("config" + end, "How it is served", "Configuration", "404"),
        }
        for last, operation in of_model.items():
            paths[path + last] = {"parameters": parameters, "get": operation}
        paths[path + "/infer"] = {
            "parameters": parameters,
            "post": _operation(
                "infer" + end,
                "The outputs of a model",
                "InferenceResponse",
                "400 404 408 413 415 429 503",
                "InferenceRequest",
                binary=True,
            ),
        }
        stream = _text_operation("generate" + end, "Tokens, one event each", "text/event-stream")
        stream["requestBody"] = {"required": True, "content": _json("GenerationRequest")}
        stream["responses"].update(_errors("400 404 408 413 415 429"))
        paths[path + "/generate_stream"] = {"parameters": parameters, "post": stream}
    return {
        "openapi": "3.1.0",
        "info": {"title": "metaop", "version": __version__},
        "paths": paths,
        "components": {"schemas": _SCHEMAS},
    }

"""The read-only routes of a Confluent schema registry, so that any Avro client can decode."""

from schemas.atdp import avro


def registry_answer(path: str) -> object | None:
    """What a Confluent schema registry answers to a GET; None for what does not exist."""
    by_subject = {f"{avro.NAMESPACE}.{cls.__name__}": i for i, (cls, _) in avro.RELEASES.items()}
    parts = path.strip("/").split("/")
    match parts:
        case ["schemas", "ids", number] if _id(number) in avro.RELEASES:
            return {"schema": avro.released_file(_id(number)).read_text()}
        case ["subjects"]:
            return sorted(by_subject)
        case ["subjects", subject, "versions"] if subject in by_subject:
            return _versions(subject)
        case ["subjects", subject, "versions", version] if subject in by_subject:
            return _one_version(subject, version)
    return None


def _versions(subject: str) -> list[int]:
    return sorted(
        v for c, v in avro.RELEASES.values() if f"{avro.NAMESPACE}.{c.__name__}" == subject
    )


def _one_version(subject: str, version: str) -> object | None:
    wanted = max(_versions(subject)) if version == "latest" else _id(version)
    for schema_id, (cls, released) in avro.RELEASES.items():
        if f"{avro.NAMESPACE}.{cls.__name__}" == subject and released == wanted:
            text = avro.released_file(schema_id).read_text()
            return {"subject": subject, "version": released, "id": schema_id, "schema": text}
    return None


def _id(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1

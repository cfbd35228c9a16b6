"""Versions of a policy's weights: what changed between two, how it travels, how it is proved.

    tensors  ──diff──▶ delta ──pack──▶ payload ──split──▶ chunks ──▶ weights.chunks.v1
                                          └── over 8 MiB, and snapshots ──▶ blob store
    manifest (root, digests, where the payload lies) ──in a transaction──▶ weights.versions.v1

A reader takes a manifest, fetches the payload, unpacks it against the layout that it knows, stages
it on a shadow and believes it only when every digest and the root are the manifest's. The payload
is relative and small; what is written into an engine is absolute, and writing it twice is harmless.

Needs numpy, xxhash and zstandard (the extra `weights`), never torch. Little-endian machines only.
"""

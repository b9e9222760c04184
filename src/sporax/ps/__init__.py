"""Parameter server: weights live in server processes, workers push gradients and pull values.

Promise: an update that was acknowledged is never lost and never applied twice, whatever process is killed.

=============  ==============================================================================================
where          what
=============  ==============================================================================================
`messages`     what processes say to each other
`wire`         the byte form: header, struct, raw frames
`update`       optimizers of a server
`hashing`      slots and first values of embedding rows
`table`        rows of an embedding table with a vectorised hash index
`slot`         everything one slot keeps; changes only by applying records
`placement`    parameters -> slots, slots -> servers
`log`          write-ahead log and snapshots
`server_state`, `scheduler_state`, `client_state`   the protocol: events in, actions out, no sockets
`server`, `scheduler`, `client`                     sockets and files around them
=============  ==============================================================================================

This package imports neither JAX nor the facade. pyzmq and msgspec come with the extra ``ps``.
"""

"""Parameter server: weights live in server processes, workers push gradients and pull values.

Promise: an update that was acknowledged is never lost and never applied twice, whatever process is killed.

=============  ==============================================================================================
where          what
=============  ==============================================================================================
`protocol`     what processes say to each other, and its byte form: header, struct, raw frames
`sockets`      peers, streams, security
`slots`        everything one slot keeps, which changes only by applying records: rows of embedding tables, optimizers,
               write-ahead log and snapshots; which parameters are in which slot, and which slots on which server
`scheduler`, `server`, `client`   state machines (`*_state`: events in, actions out, no sockets), and sockets and files around
them `worker`       what a worker keeps: its connection, a cache of rows, leases of samples
=============  ==============================================================================================

This package imports neither JAX nor the facade. pyzmq and msgspec come with the extra ``ps``.
"""

"""The processes of a job: who they are, how they find each other, and what happens when one is lost.

A layer without devices. It is read in this order:

* `environment`: this process's place in the job, from environment variables;
* `rendezvous`: how unknown processes become a numbered cluster, as a state machine; `scheduler` and `membership` are its two
  ends on the network, `ports` opens sockets;
* `board` and `watchdog`: which rank is behind, and how the others end when one is lost.
"""

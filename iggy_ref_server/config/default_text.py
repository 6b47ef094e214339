"""The default configuration, as the TOML file that ``iggy-server defaults`` prints.

It is the only place where defaults live: loading reads this text first. Every default that the
original server has is the same here. Keys that only this server knows are marked as such.
"""

from __future__ import annotations

from typing import Final

__all__ = ["DEFAULT_TOML"]

DEFAULT_TOML: Final = """\
# The configuration of iggy-server, with every key at its default.
#
# Durations: "5ms", "1 m", "2 days 4 hours"; "none" or "0" where there shall be none.
# Sizes:     "100 KB" (1000), "1 GiB" (1024^3), or a number of bytes.
# Each key can be set by the environment: system.segment.size is IGGY_SYSTEM_SEGMENT_SIZE.

[consumer_group]
# How long a member may keep a partition that was given to another before it is taken away.
rebalancing_timeout = "30s"
# How often that is looked after.
rebalancing_check_interval = "5s"

[data_maintenance.messages]
# Whether messages are deleted by age and size as their topics say.
cleaner_enabled = false
interval = "1 m"

# The REST face.
[http]
enabled = true
address = "127.0.0.1:3000"
# The largest body of a request.
max_request_size = "2 MB"
# The web interface belongs to the original server.
web_ui = false

[http.cors]
enabled = true
allowed_methods = ["GET", "POST", "PUT", "DELETE"]
# A "*" in the first place means any.
allowed_origins = ["*"]
allowed_headers = ["content-type", "authorization"]
exposed_headers = [""]
allow_credentials = false
allow_private_network = false

[http.jwt]
# HS256, HS384, HS512, RS256, RS384 or RS512.
algorithm = "HS256"
issuer = "iggy.apache.org"
audience = "iggy.apache.org"
valid_issuers = ["iggy.apache.org"]
valid_audiences = ["iggy.apache.org"]
# How long an access token lives; "none" for ever.
access_token_expiry = "1 h"
# How much the clocks of others may differ.
clock_skew = "5 s"
# When a new token starts to count.
not_before = "0 s"
# Without secrets, random ones are made at every start, and tokens do not outlive a restart.
encoding_secret = ""
decoding_secret = ""
use_base64_secret = false

# Whose tokens are accepted besides our own. An entry without a user_id above 0 is never used.
[[http.jwt.trusted_issuers]]
issuer = "test-issuer"
jwks_url = "http://127.0.0.1:8081/.well-known/jwks.json"
audience = "iggy.apache.org"

[http.metrics]
enabled = true
endpoint = "/metrics"

[http.tls]
enabled = false
cert_file = "core/certs/iggy_cert.pem"
key_file = "core/certs/iggy_key.pem"

# The binary protocol over TCP.
[tcp]
enabled = true
# Port 0 takes a free port; runtime/current_config.toml tells which.
address = "127.0.0.1:8090"
# Whether a connection may be handed to the shard that owns its data; otherwise requests are
# forwarded.
socket_migration = true
# The address decides which version of IP is used; true insists on version 6.
ipv6 = false
# Only here: the congestion control of accepted sockets, such as "cubic"; empty leaves it alone.
congestion_control = ""

[tcp.tls]
enabled = false
# Makes a certificate for localhost when cert_file does not exist. For development only.
self_signed = true
cert_file = "core/certs/iggy_cert.pem"
key_file = "core/certs/iggy_key.pem"

[tcp.socket]
# Whether the rest of this section counts.
override_defaults = false
recv_buffer_size = "100 KB"
send_buffer_size = "100 KB"
keepalive = false
# This server switches Nagle's algorithm off always, whatever this says.
nodelay = false
# How long closing waits for data that was not sent yet.
linger = "0 s"

# The binary protocol over QUIC, always encrypted.
[quic]
enabled = true
address = "127.0.0.1:8080"
max_concurrent_bidi_streams = 10_000
datagram_send_buffer_size = "100 KB"
initial_mtu = "8 KB"
send_window = "100 KB"
receive_window = "100 KB"
keep_alive_interval = "5 s"
max_idle_timeout = "10 s"

[quic.certificate]
self_signed = true
cert_file = "core/certs/iggy_cert.pem"
key_file = "core/certs/iggy_key.pem"

[quic.socket]
override_defaults = false
recv_buffer_size = "64 KB"
send_buffer_size = "64 KB"
keepalive = false

# The binary protocol over WebSocket. Sizes that can be set besides: max_frame_size (16 MiB unless
# set) and max_message_size (64 MiB) bound what a client may send, read_buffer_size (256 KiB) what
# is received at once; write_buffer_size and max_write_buffer_size have no effect here.
[websocket]
enabled = true
address = "127.0.0.1:8092"
accept_unmasked_frames = false

[websocket.tls]
enabled = false
self_signed = true
cert_file = "core/certs/iggy_cert.pem"
key_file = "core/certs/iggy_key.pem"

# Writes what is still in memory, which happens with system.partition.ack = "memory" only.
[message_saver]
enabled = true
# Whether the disk is waited for.
enforce_fsync = true
interval = "30 s"

[personal_access_token]
max_tokens_per_user = 100

[personal_access_token.cleaner]
enabled = true
interval = "1 m"

# Closes connections whose client has not been heard of for 1.2 intervals.
[heartbeat]
enabled = false
interval = "5 s"

# This server exports no telemetry.
[telemetry]
enabled = false
service_name = "iggy"

[telemetry.logs]
transport = "grpc"
endpoint = "http://localhost:7281/v1/logs"

[telemetry.traces]
transport = "grpc"
endpoint = "http://localhost:7281/v1/traces"

[system]
# The data directory. All other paths of this section are relative to it.
path = "local_data"

# Not used: this server opens the files of the original as they are.
[system.backup]
path = "backup"

[system.backup.compatibility]
path = "compatibility"

# The metadata: streams, topics, users and so on.
[system.state]
# This server always waits for the disk before it acknowledges a change of metadata.
enforce_fsync = false
# Not used: a failed write is reported at once.
max_file_operation_retries = 1
retry_delay = "1 s"

# Emptied at every start; afterwards current_config.toml is in it.
[system.runtime]
path = "runtime"

[system.logging]
path = "logs"
# trace, debug, info, warn, error or off, also for parts: "info,iggy=debug". RUST_LOG comes first.
level = "info"
# Whether logs are also written to files.
file_enabled = true
# A file of this size, or of another hour, is put aside; 0 keeps a single file for ever.
max_file_size = "500 MB"
# How large all log files together may become; 0 is without a bound.
max_total_size = "4 GB"
# How often old files are looked for, and how old they may become.
rotation_check_interval = "1 h"
retention = "7 days"
# How often the state of the machine is logged; 0 is never.
sysinfo_print_interval = "10 s"

# Encrypts payloads, user headers and metadata on the disk with AES-256-GCM.
[system.encryption]
enabled = false
# 32 random bytes in base64: head -c 32 /dev/urandom | base64
key = ""

# Not used: the server never compresses, clients may.
[system.compression]
allow_override = false
default_algorithm = "none"

[system.stream]
path = "streams"

# What topics get that leave it to the server.
[system.topic]
path = "topics"
# Above this size the oldest segments are deleted: "unlimited", or at least one segment.
max_size = "unlimited"
# Segments with nothing younger than this are deleted: "none" keeps all.
message_expiry = "none"

[system.partition]
path = "partitions"
# Only here: what an acknowledgement of messages promises.
#   "memory"   the server has them; a crash may lose them
#   "written"  the operating system has them; only a power failure may lose them
#   "fsync"    the disk has them
ack = "written"
# The same as ack = "fsync".
enforce_fsync = false
# Whether the checksums of all messages are checked at start, and again by each poll; otherwise by
# the first poll of them since the start.
validate_checksum = false
# With ack = "memory": how many messages, or how many bytes, may wait before they are written.
messages_required_to_save = 1024
size_of_messages_required_to_save = "1 MiB"

[system.segment]
# A file that has reached this size is followed by a new one: at most 1 GiB, a multiple of 512 B.
size = "1 GiB"
# Only here: a file whose first message is older than this is followed by a new one as well; "none"
# for no such bound. Only full files expire, so this bounds how late messages of quiet topics do.
max_age = "none"
# Not used: what has expired is deleted.
archive_expired = false
# Which indexes are kept in memory: "all" (or true), "open_segment", "none" (or false).
cache_indexes = "open_segment"

# Only here: what is deleted, with a warning for each file, when less than this is free: the oldest
# full files of all topics, first those that every consumer and group has read. "0" deletes nothing.
[system.retention]
min_free_space = "0"

# Drops messages whose id was already seen in the partition.
[system.message_deduplication]
enabled = false
# How many ids are remembered, and for how long; 0 is without a bound.
max_entries = 10000
expiry = "1 m"

# Not used: a damaged partition is set aside, and iggy-server repair mends what can be mended.
[system.recovery]
recreate_missing_state = false

# Not used: buffers are the business of Python's allocator. Values are checked all the same.
[system.memory_pool]
enabled = true
size = "4 GiB"
bucket_capacity = 8192

[system.sharding]
# Each shard is a process on a core of its own.
#   "all"                                 every core that the server may use
#   4                                     the first four of them
#   "5..8"                                cores 5, 6 and 7
#   "numa:auto"                           one thread of every physical core
#   "numa:nodes=0,1;cores=4;no_ht=true"   four physical cores of each of these NUMA nodes
cpu_allocation = "numa:auto"

# Only here: what serves the files.
[system.storage]
# "io_uring", "threads", or "auto" for the first of them that works.
engine = "auto"

# What clients are told when they ask for the cluster. There is no replication.
[cluster]
enabled = false
name = "iggy-cluster"

[cluster.node.current]
name = "iggy-node-1"
ip = "127.0.0.1"

# Ports that are left out are those of this node.
[[cluster.node.others]]
name = "iggy-node-2"
ip = "127.0.0.1"
ports = { tcp = 8091, quic = 8081, http = 3001, websocket = 8093 }

# Only here: bounds on what clients can ask for.
[limits]
# How many TCP connections each shard takes, and how many of all doors before a login, in all and
# from one address. For one more of these the one goes that has been silent for longest.
max_connections = 8192
max_unauthenticated_connections = 1024
max_unauthenticated_connections_per_address = 512
# How many requests of one connection may be under way; the next ones wait in the socket.
max_pipelined_requests = 1024
# The largest request that sends messages; a larger one closes the connection.
max_send_bytes = "128 MiB"
# The largest answer to a poll that has to be read into memory: of encrypted topics, over HTTP, or
# of another shard. It is cut between two messages, and holds at least one.
max_poll_bytes = "64 MiB"
# How many bytes of answers a slow client may have waiting before its requests wait too.
max_reply_backlog_bytes = "64 MiB"
# How many logins may wait for their password to be checked; the next ones are refused.
max_login_queue = 64
# Closes a connection without any request for so long; "none" never does.
idle_timeout = "none"
# Closes a connection that stands still in the middle of a request or an answer; a request has to
# be complete or to grow by 64 KiB in this time.
stall_timeout = "30 s"
# Closes a connection without a login and without a request for so long; "none" never does. Official
# clients ping every 5 s, before their login as well.
login_timeout = "15 s"
# What the buffers of all clients may take together, divided among the shards: requests that are not
# complete, batches that are not written, replies in memory that are not sent. "auto" is a quarter
# of the memory of the machine or the container. Near it large requests wait, and beyond it the
# connection is closed that holds most.
memory_budget = "auto"

# Bounds of the WebSocket door alone; the narrower one counts where there are two.
[limits.websocket]
# How many connections each shard takes at this door.
max_connections = 8192
# How many of them may be unfinished; for one more, the oldest of those is given up.
max_handshakes = 256
# How long TLS and the request for a WebSocket may take together.
handshake_timeout = "10 s"
idle_timeout = "none"
max_reply_backlog_bytes = "64 MiB"

# Bounds of the HTTP door alone, which one shard has for all; the narrower one counts here as well.
[limits.http]
max_connections = 1024
# How many of them may be in the middle of a TLS handshake, and how long it may take.
max_handshakes = 64
handshake_timeout = "10 s"
# How long a connection is kept for another request.
idle_timeout = "2 m"
# The request line with all headers; bodies are bounded by http.max_request_size.
max_head_bytes = "32 KiB"

# Bounds of the QUIC door alone, which one shard has for all; the narrower one counts here as well.
[limits.quic]
max_connections = 8192
# How many of them may be unfinished; from half of it on, clients have to show that their address
# is theirs, and for one more the oldest is given up.
max_handshakes = 256
handshake_timeout = "10 s"
# Closes a connection without any request for so long; quic.max_idle_timeout is about packets.
idle_timeout = "none"
# How much of large requests one client may have under way; the next ones wait at the client.
max_request_backlog_bytes = "128 MiB"
max_reply_backlog_bytes = "64 MiB"
"""

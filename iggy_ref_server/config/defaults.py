"""The default configuration, as the TOML file that ``iggy-server defaults`` prints.

All defaults are in this text: loading reads it first. The defaults are those of Apache Iggy 0.8;
keys that only this server has are marked with "Only here".
"""

from __future__ import annotations

from typing import Final

DEFAULT_TOML: Final = """\
# The configuration of iggy-server, with every key at its default.
#
# Durations: "5ms", "1 m", "2 days 4 hours"; "none" or "0" for none.
# Sizes:     "100 KB" (1000), "1 GiB" (1024^3), or a number of bytes.
# Each key has an environment variable: system.segment.size is IGGY_SYSTEM_SEGMENT_SIZE.

[consumer_group]
# How long a member may keep a partition that was assigned to another member.
rebalancing_timeout = "30s"
# How often that is checked.
rebalancing_check_interval = "5s"

[data_maintenance.messages]
# Whether messages are deleted by the age and size limits of their topics.
cleaner_enabled = false
interval = "1 m"

# The REST API.
[http]
enabled = true
address = "127.0.0.1:3000"
# The maximum size of a request body.
max_request_size = "2 MB"
# Not supported: this server has no web interface.
web_ui = false

[http.cors]
enabled = true
allowed_methods = ["GET", "POST", "PUT", "DELETE"]
# A "*" as the first element means any.
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
# The lifetime of an access token; "none" is unlimited.
access_token_expiry = "1 h"
# How much the clocks of other issuers may differ.
clock_skew = "5 s"
# How long after its creation a token becomes valid.
not_before = "0 s"
# If empty, each start generates random secrets, and tokens are invalid after a restart.
encoding_secret = ""
decoding_secret = ""
use_base64_secret = false

# Other issuers whose tokens are accepted. An entry without a user_id above 0 is never used.
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
# Port 0 chooses a free port, which is then in runtime/current_config.toml.
address = "127.0.0.1:8090"
# Whether a connection may migrate to the shard that owns its data; otherwise requests are
# forwarded.
socket_migration = true
# The address decides the IP version; true requires version 6.
ipv6 = false
# Only here: the congestion control of accepted sockets, such as "cubic"; empty is the default.
congestion_control = ""

[tcp.tls]
enabled = false
# Generates a certificate for localhost if cert_file does not exist. For development only.
self_signed = true
cert_file = "core/certs/iggy_cert.pem"
key_file = "core/certs/iggy_key.pem"

[tcp.socket]
# Whether the other keys of this section apply.
override_defaults = false
recv_buffer_size = "100 KB"
send_buffer_size = "100 KB"
keepalive = false
# No effect: this server always disables Nagle's algorithm.
nodelay = false
# How long closing a socket waits for data that is not sent yet.
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

# The binary protocol over WebSocket. Optional keys: max_frame_size (default 16 MiB) and
# max_message_size (64 MiB) limit what a client may send, read_buffer_size (256 KiB) is the size of
# one receive; write_buffer_size and max_write_buffer_size have no effect.
[websocket]
enabled = true
address = "127.0.0.1:8092"
accept_unmasked_frames = false

[websocket.tls]
enabled = false
self_signed = true
cert_file = "core/certs/iggy_cert.pem"
key_file = "core/certs/iggy_key.pem"

# Writes messages that are only in memory, which exist only with system.partition.ack = "memory".
[message_saver]
enabled = true
# No effect: full segments are always synced to disk.
enforce_fsync = true
interval = "30 s"

[personal_access_token]
max_tokens_per_user = 100

[personal_access_token.cleaner]
enabled = true
interval = "1 m"

# Removes a client from its groups after 1.2 intervals without a heartbeat, and disconnects it
# after 3.
[heartbeat]
enabled = false
interval = "5 s"

# Not supported: this server exports no telemetry.
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

# Not used: this server opens files of Apache Iggy as they are.
[system.backup]
path = "backup"

[system.backup.compatibility]
path = "compatibility"

# The metadata: streams, topics, users and others.
[system.state]
# No effect: this server always syncs metadata before it acknowledges a change.
enforce_fsync = false
# Not used: a failed write is reported at once.
max_file_operation_retries = 1
retry_delay = "1 s"

# Cleared at every start; holds current_config.toml.
[system.runtime]
path = "runtime"

[system.logging]
path = "logs"
# trace, debug, info, warn, error or off, also for parts: "info,iggy=debug". RUST_LOG overrides it.
level = "info"
# Whether logs are also written to files.
file_enabled = true
# A log file of this size, or of an earlier hour, is rotated; 0 keeps a single file.
max_file_size = "500 MB"
# The maximum size of all log files together; 0 is unlimited.
max_total_size = "4 GB"
# How often old log files are removed, and their maximum age.
rotation_check_interval = "1 h"
retention = "7 days"
# How often CPU time and memory of each shard are logged; 0 is never.
sysinfo_print_interval = "10 s"

# Encrypts payloads, user headers and metadata at rest with AES-256-GCM.
[system.encryption]
enabled = false
# 32 random bytes in base64: head -c 32 /dev/urandom | base64
key = ""

# Not used: the server does not compress messages; clients may.
[system.compression]
allow_override = false
default_algorithm = "none"

[system.stream]
path = "streams"

# Defaults for topics that are created with "server default".
[system.topic]
path = "topics"
# Above this size the oldest segments are deleted: "unlimited", or at least one segment.
max_size = "unlimited"
# Segments whose messages are all older than this are deleted: "none" keeps all.
message_expiry = "none"

[system.partition]
path = "partitions"
# Only here: what an acknowledgement of messages guarantees.
#   "memory"   messages are in memory; a crash may lose them
#   "written"  messages are in the page cache; only a power failure may lose them
#   "fsync"    messages are synced to disk
ack = "written"
# The same as ack = "fsync".
enforce_fsync = false
# Whether checksums are verified at the start and by each poll; otherwise by the first poll of a
# message since the start.
validate_checksum = false
# With ack = "memory": after how many messages, or how many bytes, messages are written.
messages_required_to_save = 1024
size_of_messages_required_to_save = "1 MiB"

[system.segment]
# A segment of this size is sealed and a new one begun: at most 1 GiB, a multiple of 512 B.
size = "1 GiB"
# Only here: a segment whose first message is older than this is sealed as well; "none" is off. Only
# sealed segments expire, so this limits how late messages of quiet topics expire.
max_age = "none"
# Not supported: expired segments are deleted.
archive_expired = false
# Which indexes are kept in memory: "all" (or true), "open_segment", "none" (or false).
cache_indexes = "open_segment"

# Only here: when less disk space than this is free, the oldest sealed segments of all topics are
# deleted with a warning, first those that every consumer and group has read. "0" is off.
[system.retention]
min_free_space = "0"

# Drops messages whose id the partition already has.
[system.message_deduplication]
enabled = false
# How many ids are kept, and for how long; 0 is unlimited.
max_entries = 10000
expiry = "1 m"

# Not supported: a damaged partition is quarantined; use iggy-server repair.
[system.recovery]
recreate_missing_state = false

# Not used: buffers are managed by Python's allocator. Values are still validated.
[system.memory_pool]
enabled = true
size = "4 GiB"
bucket_capacity = 8192

[system.sharding]
# Each shard is a process on its own CPU core.
#   "all"                                 every core that the server may use
#   4                                     the first four of them
#   "5..8"                                cores 5, 6 and 7
#   "numa:auto"                           one thread of every physical core
#   "numa:nodes=0,1;cores=4;no_ht=true"   four physical cores of each of these NUMA nodes
cpu_allocation = "numa:auto"

# Only here: the storage engine.
[system.storage]
# "io_uring", "threads", or "auto": io_uring if it works, else threads.
engine = "auto"

# The cluster metadata that clients get. There is no replication.
[cluster]
enabled = false
name = "iggy-cluster"

[cluster.node.current]
name = "iggy-node-1"
ip = "127.0.0.1"

# The default of a port is the port of this node.
[[cluster.node.others]]
name = "iggy-node-2"
ip = "127.0.0.1"
ports = { tcp = 8091, quic = 8081, http = 3001, websocket = 8093 }

# Only here: limits of clients.
[limits]
# The maximum of TCP connections per shard, and of connections of all transports before a login, in
# total and from one address. One more of the latter closes the one that has been idle for longest.
max_connections = 8192
max_unauthenticated_connections = 1024
max_unauthenticated_connections_per_address = 512
# How many requests of one connection may be in flight; further ones wait in the socket.
max_pipelined_requests = 1024
# The maximum size of a send request; a larger one closes the connection.
max_send_bytes = "128 MiB"
# The maximum size of a poll reply that has to be read into memory: of encrypted topics, over HTTP,
# or of another shard. It is cut between two messages, and holds at least one.
max_poll_bytes = "64 MiB"
# How long a poll may wait for messages if its client asks for it, from 0.10 on; a client that asks
# for more is answered after this time. "none" answers all polls at once.
max_poll_wait = "30 s"
# How many bytes of replies may wait for a slow client before its requests wait too.
max_reply_backlog_bytes = "64 MiB"
# How many logins may wait for the verification of their password; further ones are refused.
max_login_queue = 64
# Closes a connection after this time without a request; "none" is never.
idle_timeout = "none"
# Closes a connection that stalls in the middle of a request or a reply; in this time a request has
# to be complete or to grow by 64 KiB.
stall_timeout = "30 s"
# Closes a connection without a login after this time without a request; "none" is never. Official
# clients ping every 5 s, also before their login.
login_timeout = "15 s"
# The memory for buffers of all clients, divided among the shards: incomplete requests, batches that
# are not written, replies that are not sent. "auto" is a quarter of the memory of the machine or
# the container. Near the limit large requests wait; beyond it the connection that holds most is
# closed.
memory_budget = "auto"

# Limits of the WebSocket transport; where a limit exists twice, the lower one applies.
[limits.websocket]
# The maximum of WebSocket connections per shard.
max_connections = 8192
# How many handshakes may be in progress; one more closes the oldest.
max_handshakes = 256
# The timeout of the TLS handshake and the WebSocket upgrade together.
handshake_timeout = "10 s"
idle_timeout = "none"
max_reply_backlog_bytes = "64 MiB"

# Limits of the HTTP transport, which shard 0 serves alone; the lower of two limits applies.
[limits.http]
max_connections = 1024
# How many TLS handshakes may be in progress, and their timeout.
max_handshakes = 64
handshake_timeout = "10 s"
# How long a connection is kept open for another request.
idle_timeout = "2 m"
# The request line with all headers; bodies are limited by http.max_request_size.
max_head_bytes = "32 KiB"

# Limits of the QUIC transport, which shard 0 serves alone; the lower of two limits applies.
[limits.quic]
max_connections = 8192
# How many handshakes may be in progress; from half of it on, clients have to validate their address
# (RETRY), and one more closes the oldest.
max_handshakes = 256
handshake_timeout = "10 s"
# Closes a connection after this time without a request; quic.max_idle_timeout counts packets.
idle_timeout = "none"
# How many bytes of large requests one client may have in flight; further ones wait in the client.
max_request_backlog_bytes = "128 MiB"
max_reply_backlog_bytes = "64 MiB"
"""

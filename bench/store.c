/*
 * The yardstick: a plain C server that stores messages as a server of this house does, and no more.
 *
 *   store PORT DIRECTORY CORE [sync]
 *
 * It receives whole frames, stamps messages (id, offset, time, checksum), writes them to a log and
 * their entries to an index, one of each per partition, and acknowledges; polls are answered with
 * sendfile. Writes block, "sync" adds an fdatasync to each, and nothing is grouped. There are no
 * users, no permissions, no segments and no recovery.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "_batch_store.h"

enum {
    CODE_LOGIN = 38,
    CODE_POLL = 100,
    CODE_SEND = 101,
    CODE_DELETE_TOPIC = 303,

    HEAD_BYTES = 8,
    POLLED_HEAD_BYTES = 16,
    SMALL_RECEIVE_BYTES = 64 << 10,
    FRAME_BYTES_MAX = 64 << 20,
    TOPIC_BYTES_MAX = 600,
    PARTITIONS_MAX = 256,
    EVENTS_MAX = 64,
    STATUS_INVALID_COMMAND = 3,
};

struct partition {
    uint8_t topic[TOPIC_BYTES_MAX]; /* both identifiers as they came */
    size_t topic_bytes;
    uint32_t id;
    int log, index;
    unsigned number; /* names the files */
    uint64_t size, count, count_max;
    uint64_t *ends; /* where each message ends in the log */
};

struct connection {
    int fd;
    uint8_t *buffer;
    size_t used, capacity;
};

static const char *directory;
static bool is_syncing;
static struct partition partitions[PARTITIONS_MAX];
static size_t partitions_count;
static unsigned next_number;
static uint64_t random_state;
static uint8_t *random_bytes;
static size_t random_capacity;

static void check(bool is_well, const char *what)
{
    if (!is_well) {
        fprintf(stderr, "store: %s: %s\n", what, strerror(errno));
        exit(1);
    }
}

static void *grow(void *memory, size_t size)
{
    void *grown = realloc(memory, size);
    check(grown != NULL, "memory");
    return grown;
}

/* ---- partitions ------------------------------------------------------------------------ */

static int open_file(unsigned number, const char *suffix)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%u.%s", directory, number, suffix);
    int fd = open(path, O_CREAT | O_RDWR | O_TRUNC, 0600);
    check(fd >= 0, path);
    return fd;
}

static void remove_file(unsigned number, const char *suffix)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%u.%s", directory, number, suffix);
    check(unlink(path) == 0, path);
}

static struct partition *find_partition(const uint8_t *topic, size_t topic_bytes, uint32_t id)
{
    for (size_t i = 0; i < partitions_count; i++) {
        struct partition *partition = &partitions[i];
        if (partition->id == id && partition->topic_bytes == topic_bytes &&
            memcmp(partition->topic, topic, topic_bytes) == 0)
            return partition;
    }
    check(partitions_count < PARTITIONS_MAX, "too many partitions");
    struct partition *partition = &partitions[partitions_count++];
    *partition = (struct partition){.topic_bytes = topic_bytes, .id = id, .number = next_number++};
    memcpy(partition->topic, topic, topic_bytes);
    partition->log = open_file(partition->number, "log");
    partition->index = open_file(partition->number, "index");
    return partition;
}

static void drop_topic(const uint8_t *topic, size_t topic_bytes)
{
    for (size_t i = partitions_count; i-- > 0;) {
        struct partition *partition = &partitions[i];
        if (partition->topic_bytes != topic_bytes ||
            memcmp(partition->topic, topic, topic_bytes) != 0)
            continue;
        close(partition->log);
        close(partition->index);
        remove_file(partition->number, "log");
        remove_file(partition->number, "index");
        free(partition->ends);
        *partition = partitions[--partitions_count];
    }
}

/* ---- storing --------------------------------------------------------------------------- */

static void make_random(size_t size)
{
    if (size > random_capacity)
        random_bytes = grow(random_bytes, random_capacity = size);
    for (size_t at = 0; at + 8 <= size; at += 8) {
        uint64_t value = (random_state += 0x9E3779B97F4A7C15u);
        value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
        value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
        store_u64(random_bytes + at, value ^ (value >> 31));
    }
}

static void note_ends(struct partition *partition, const uint8_t *entries, uint32_t count)
{
    if (partition->count + count > partition->count_max) {
        partition->count_max = 2 * partition->count_max + count;
        partition->ends = grow(partition->ends, partition->count_max * sizeof *partition->ends);
    }
    for (uint32_t i = 0; i < count; i++)
        partition->ends[partition->count + i] =
            partition->size + load_u32(entries + i * INDEX_BYTES + AT_INDEX_POSITION);
}

static void write_all(int fd, const uint8_t *bytes, size_t size, uint64_t position)
{
    while (size > 0) {
        ssize_t written = pwrite(fd, bytes, size, (off_t)position);
        check(written > 0, "write");
        bytes += written;
        size -= (size_t)written;
        position += (uint64_t)written;
    }
}

/* The index entries of the request are overwritten with those for the file. */
static bool append(struct partition *partition, uint8_t *entries, uint32_t count, uint8_t *messages,
                   size_t size)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    make_random((size_t)count * ID_BYTES);
    struct stamp stamp = {
        .base_offset = partition->count,
        .timestamp = (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u,
        .random = random_bytes,
        .random_bytes = (size_t)count * ID_BYTES,
    };
    if (stamp_messages(&stamp, messages, size) != STAMPED || stamp.count != count ||
        !write_entries(entries, count, messages, size, partition->count, 0))
        return false;
    note_ends(partition, entries, count);
    write_all(partition->log, messages, size, partition->size);
    write_all(partition->index, entries, (size_t)count * INDEX_BYTES,
              partition->count * INDEX_BYTES);
    if (is_syncing)
        check(fdatasync(partition->log) == 0, "sync");
    partition->size += size;
    partition->count += count;
    return true;
}

/* ---- answering ------------------------------------------------------------------------- */

static void wait_writable(int fd)
{
    struct pollfd wanted = {.fd = fd, .events = POLLOUT};
    poll(&wanted, 1, -1);
}

static void send_all(int fd, const void *bytes, size_t size, int flags)
{
    const uint8_t *at = bytes;
    while (size > 0) {
        ssize_t sent = send(fd, at, size, MSG_NOSIGNAL | flags);
        if (sent < 0 && errno == EAGAIN)
            wait_writable(fd);
        else if (sent < 0)
            return; /* the client is gone, and reading will tell */
        else
            at += sent, size -= (size_t)sent;
    }
}

static void answer(int fd, uint32_t status, const void *payload, uint32_t size)
{
    uint8_t frame[HEAD_BYTES + 4];
    store_u32(frame, status);
    store_u32(frame + 4, size);
    if (size != 0)
        memcpy(frame + HEAD_BYTES, payload, size);
    send_all(fd, frame, HEAD_BYTES + size, 0);
}

static void send_messages(int fd, const struct partition *partition, uint64_t first, uint32_t count)
{
    uint8_t head[HEAD_BYTES + POLLED_HEAD_BYTES];
    uint64_t left_count = first < partition->count ? partition->count - first : 0;
    uint32_t taken = left_count < count ? (uint32_t)left_count : count;
    off_t at = taken != 0 && first != 0 ? (off_t)partition->ends[first - 1] : 0;
    size_t left = taken != 0 ? partition->ends[first + taken - 1] - (uint64_t)at : 0;
    store_u32(head, 0);
    store_u32(head + 4, (uint32_t)(POLLED_HEAD_BYTES + left));
    store_u32(head + 8, partition->id);
    store_u64(head + 12, partition->count != 0 ? partition->count - 1 : 0);
    store_u32(head + 20, taken);
    send_all(fd, head, sizeof head, left != 0 ? MSG_MORE : 0);
    while (left > 0) {
        ssize_t sent = sendfile(fd, partition->log, &at, left);
        if (sent < 0 && errno == EAGAIN)
            wait_writable(fd);
        else if (sent <= 0)
            return;
        else
            left -= (size_t)sent;
    }
}

/* ---- requests -------------------------------------------------------------------------- */

/* The bytes of two identifiers: stream and topic. */
static size_t topic_size(const uint8_t *at)
{
    size_t stream = 2 + (size_t)at[1];
    return stream + 2 + at[stream + 1];
}

static bool take_send(uint8_t *body, size_t size)
{
    size_t metadata_bytes = size >= 4 ? load_u32(body) : 0;
    if (metadata_bytes < 14 || metadata_bytes > size - 4)
        return false;
    const uint8_t *topic = body + 4;
    size_t topic_bytes = topic_size(topic);
    if (topic_bytes + 10 != metadata_bytes) /* kind, length, partition id, count */
        return false;
    uint32_t count = load_u32(topic + topic_bytes + 6);
    size_t messages_at = 4 + metadata_bytes + (size_t)count * INDEX_BYTES;
    if (messages_at > size)
        return false;
    uint32_t id = load_u32(topic + topic_bytes + 2);
    struct partition *partition = find_partition(topic, topic_bytes, id);
    return append(partition, body + 4 + metadata_bytes, count, body + messages_at,
                  size - messages_at);
}

static void take_poll(int fd, const uint8_t *body)
{
    const uint8_t *topic = body + 3 + body[2];
    const uint8_t *rest = topic + topic_size(topic);
    uint32_t id = load_u32(rest + 1);
    const struct partition *partition = find_partition(topic, topic_size(topic), id);
    send_messages(fd, partition, load_u64(rest + 6), load_u32(rest + 14));
}

static void take_request(int fd, uint32_t code, uint8_t *body, size_t size)
{
    uint32_t user_id = 0;
    switch (code) {
    case CODE_SEND:
        answer(fd, take_send(body, size) ? 0 : STATUS_INVALID_COMMAND, NULL, 0);
        return;
    case CODE_POLL:
        take_poll(fd, body);
        return;
    case CODE_LOGIN:
        answer(fd, 0, &user_id, sizeof user_id);
        return;
    case CODE_DELETE_TOPIC:
        drop_topic(body, topic_size(body));
        break;
    default:
        break;
    }
    answer(fd, 0, NULL, 0);
}

/* ---- connections ----------------------------------------------------------------------- */

/* Take all complete frames; what is left moves to the front. */
static void take_frames(struct connection *connection)
{
    size_t at = 0;
    while (connection->used - at >= HEAD_BYTES) {
        uint8_t *frame = connection->buffer + at;
        size_t size = 4 + (size_t)load_u32(frame);
        if (connection->used - at < size)
            break;
        take_request(connection->fd, load_u32(frame + 4), frame + HEAD_BYTES, size - HEAD_BYTES);
        at += size;
    }
    connection->used -= at;
    if (at != 0 && connection->used != 0)
        memmove(connection->buffer, connection->buffer + at, connection->used);
}

/* How much to receive: the rest of a large frame and nothing behind it, else what there is. */
static size_t receive_size(struct connection *connection)
{
    size_t wanted = SMALL_RECEIVE_BYTES;
    if (connection->used >= HEAD_BYTES) {
        size_t frame = 4 + (size_t)load_u32(connection->buffer);
        check(frame <= FRAME_BYTES_MAX, "a frame is too large");
        if (frame > SMALL_RECEIVE_BYTES)
            wanted = frame - connection->used;
    }
    if (connection->used + wanted > connection->capacity) {
        connection->capacity = connection->used + wanted;
        connection->buffer = grow(connection->buffer, connection->capacity);
    }
    return wanted;
}

static void serve(struct connection *connection)
{
    for (;;) {
        size_t wanted = receive_size(connection);
        ssize_t size = recv(connection->fd, connection->buffer + connection->used, wanted, 0);
        if (size < 0 && errno == EAGAIN)
            return;
        if (size <= 0) {
            close(connection->fd);
            free(connection->buffer);
            free(connection);
            return;
        }
        connection->used += (size_t)size;
        take_frames(connection);
    }
}

static void accept_one(int epoll, int listener)
{
    int one = 1, fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    check(fd >= 0, "accept");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct connection *connection = grow(NULL, sizeof *connection);
    *connection = (struct connection){.fd = fd};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

static int listen_on(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    check(bind(listener, (struct sockaddr *)&address, sizeof address) == 0, "bind");
    check(listen(listener, EVENTS_MAX) == 0, "listen");
    return listener;
}

int main(int count, char **words)
{
    cpu_set_t cores;
    if (count < 4) {
        fprintf(stderr, "store PORT DIRECTORY CORE [sync]\n");
        return 2;
    }
    directory = words[2];
    is_syncing = count > 4;
    xxh3_long = XXH3_LEVELS[xxh3_levels_here() - 1].function;
    random_state = (uint64_t)time(NULL);
    CPU_ZERO(&cores);
    CPU_SET(atoi(words[3]), &cores);
    sched_setaffinity(0, sizeof cores, &cores);
    int listener = listen_on((uint16_t)atoi(words[1])), epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN}, events[EVENTS_MAX];
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int ready = epoll_wait(epoll, events, EVENTS_MAX, -1);
        for (int i = 0; i < ready; i++) {
            if (events[i].data.ptr == NULL)
                accept_one(epoll, listener);
            else
                serve(events[i].data.ptr);
        }
    }
}

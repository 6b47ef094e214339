/*
 * A load for a server: requests of one kind, prebuilt, over a few connections with a window each.
 *
 *   load port=8090 work=send stream=s topic=t messages=1000 payload=1000 window=4 seconds=1
 *   load port=8090 work=poll stored=100000 dialect=0.12.0 ...
 *
 * It connects, logs in, warms up, prints "ready" and waits for a line on its input, so that several
 * of them, and the measuring program, begin at the same moment. Then it measures and prints one
 * line of JSON. Any status but success ends it.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>

#include "frames_vsr.h"
#include "histogram.h"
#include "placement.h"

enum {
    CONNECTIONS_MAX = 64,
    WINDOW_MAX = 8192,
    RECEIVE_BYTES = 256 << 10,
    TEMPLATE_BYTES = 256 << 10,
    POLLS_PER_GROUP = 16,
    ATTEMPTS_MAX = 200,
    STALL_MS = 10000,
};

enum work { SEND, POLL, PING };

struct options {
    enum work work;
    unsigned port;
    int connections, window, core, at_process, pace_us;
    int partitions; /* connection i uses partition first + i % partitions */
    uint32_t partition;
    double seconds, warm_seconds;
    uint64_t requests_max; /* of each phase; 0 is no bound */
    uint64_t stored;       /* messages that a partition holds, for polls */
    struct batch batch;
    const struct dialect *dialect;
};

struct connection {
    int fd, in_flight;
    struct batch batch;
    struct session session;
    uint64_t requests_count; /* the number of a request in its head, from 0.9 on */
    uint8_t *template; /* the same frame many times over, for sends and pings */
    size_t frame_bytes;
    int template_frames;
    uint8_t polls[POLLS_PER_GROUP * SMALL_FRAME_BYTES];
    const uint8_t *out;
    size_t out_left;
    uint64_t offset; /* of the next poll */
    uint64_t *started;
    int first_started, next_started;
    uint8_t head[VSR_HEAD_BYTES], polled[POLLED_HEAD_BYTES];
    size_t head_have, polled_have, body_left;
};

static struct options options = {
    .connections = 1,
    .window = 1,
    .core = -1,
    .partitions = 1,
    .seconds = 1,
    .warm_seconds = 0.1,
    .dialect = DIALECTS,
    .batch = {.stream = "bench", .topic = "bench", .messages = 1, .payload_bytes = 1000},
};
static struct connection connections[CONNECTIONS_MAX];
static uint8_t received[RECEIVE_BYTES];
static struct histogram histogram;
static uint64_t answers_count, asked_count, last_answer_ns;
static bool is_closing; /* nothing more is asked */

__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "load: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- options --------------------------------------------------------------------------- */

static enum work work_named(const char *name)
{
    if (strcmp(name, "send") == 0)
        return SEND;
    if (strcmp(name, "poll") == 0)
        return POLL;
    if (strcmp(name, "ping") == 0)
        return PING;
    fail("there is no work %s", name);
}

static const struct dialect *dialect_named(const char *name)
{
    for (size_t i = 0; i < sizeof DIALECTS / sizeof *DIALECTS; i++)
        if (strcmp(name, DIALECTS[i].name) == 0)
            return &DIALECTS[i];
    fail("there is no dialect %s", name);
}

static bool is_vsr(void)
{
    return options.dialect->version != 0;
}

static size_t head_bytes(void)
{
    return is_vsr() ? VSR_HEAD_BYTES : HEAD_BYTES;
}

static void take_option(const char *name, const char *value)
{
    struct {
        const char *name;
        int *number;
    } numbers[] = {
        {"connections", &options.connections}, {"window", &options.window},
        {"core", &options.core},               {"at_process", &options.at_process},
        {"pace_us", &options.pace_us},         {"partitions", &options.partitions},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (strcmp(name, numbers[i].name) == 0) {
            *numbers[i].number = atoi(value);
            return;
        }
    }
    if (strcmp(name, "work") == 0)
        options.work = work_named(value);
    else if (strcmp(name, "dialect") == 0)
        options.dialect = dialect_named(value);
    else if (strcmp(name, "port") == 0)
        options.port = (unsigned)atoi(value);
    else if (strcmp(name, "partition") == 0)
        options.partition = (uint32_t)atoi(value);
    else if (strcmp(name, "seconds") == 0)
        options.seconds = atof(value);
    else if (strcmp(name, "warm_seconds") == 0)
        options.warm_seconds = atof(value);
    else if (strcmp(name, "requests_max") == 0)
        options.requests_max = strtoull(value, NULL, 10);
    else if (strcmp(name, "stored") == 0)
        options.stored = strtoull(value, NULL, 10);
    else if (strcmp(name, "stream") == 0)
        options.batch.stream = value;
    else if (strcmp(name, "topic") == 0)
        options.batch.topic = value;
    else if (strcmp(name, "messages") == 0)
        options.batch.messages = (uint32_t)atoi(value);
    else if (strcmp(name, "payload") == 0)
        options.batch.payload_bytes = strtoull(value, NULL, 10);
    else
        fail("there is no option %s", name);
}

static void take_options(int count, char **words)
{
    for (int i = 1; i < count; i++) {
        char *value = strchr(words[i], '=');
        if (value == NULL)
            fail("%s is no name=value", words[i]);
        *value++ = 0;
        take_option(words[i], value);
    }
    if (options.connections < 1 || options.connections > CONNECTIONS_MAX)
        fail("1 to %d connections, please", CONNECTIONS_MAX);
    if (options.window < 1 || options.window > WINDOW_MAX)
        fail("a window of 1 to %d, please", WINDOW_MAX);
    if (options.work == POLL && options.stored < options.batch.messages)
        fail("polls need as many stored messages as they ask for");
}

/* ---- connecting ------------------------------------------------------------------------ */

/* Check the head of an answer; return the size of its body. */
static size_t read_answer(const uint8_t *head)
{
    if (is_vsr() && head[AT_COMMAND] != COMMAND_REPLY)
        fail("the server ended the session with reason %u", head[VSR_HEAD_BYTES - 1]);
    uint32_t status = load_u32(head + (is_vsr() ? AT_STATUS : 0));
    if (status != 0)
        fail("status %u", status);
    return is_vsr() ? load_u32(head + AT_SIZE) - VSR_HEAD_BYTES : load_u32(head + 4);
}

static void ask_and_wait(int fd, const uint8_t *frame, size_t size)
{
    uint8_t head[VSR_HEAD_BYTES];
    if (send(fd, frame, size, MSG_NOSIGNAL) != (ssize_t)size)
        fail("cannot send: %s", strerror(errno));
    if (recv(fd, head, head_bytes(), MSG_WAITALL) != (ssize_t)head_bytes())
        fail("the server closed the connection");
    size_t body = read_answer(head);
    if (body > sizeof received)
        fail("an answer of %zu bytes was not expected", body);
    /* Asking for no bytes at all would wait for some. */
    if (body != 0 && recv(fd, received, body, MSG_WAITALL) != (ssize_t)body)
        fail("the server closed the connection");
}

static void put_number(struct connection *connection, uint8_t *frame)
{
    uint64_t number = ++connection->requests_count;
    memcpy(frame + AT_NUMBER, &number, sizeof number);
}

static void choose_client(struct session *session)
{
    if (getrandom(session->client, CLIENT_BYTES, 0) != CLIENT_BYTES)
        fail("no random bytes: %s", strerror(errno));
}

static int connect_once(unsigned *client_port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)options.port)};
    socklen_t length = sizeof address;
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        fail("cannot connect to port %u: %s", options.port, strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    getsockname(fd, (struct sockaddr *)&address, &length);
    *client_port = ntohs(address.sin_port);
    return fd;
}

static void log_in(struct connection *connection, int fd)
{
    uint8_t frame[SMALL_FRAME_BYTES];
    struct session *session = &connection->session;
    if (!is_vsr()) {
        ask_and_wait(fd, frame, write_login(frame, "iggy", "iggy"));
        return;
    }
    ask_and_wait(fd, frame, write_register(frame, session, options.dialect, "iggy", "iggy"));
    session->number = load_u64(received + REGISTERED_SESSION_AT);
    if (options.dialect->has_sessions) {
        size_t size = write_route(frame, session, &connection->batch);
        put_number(connection, frame);
        ask_and_wait(fd, frame, size);
        session->incarnation = load_u64(received);
    }
}

/* Connect until the wanted process has the other end; the answer to a ping shows that it has. */
static int connect_and_login(struct connection *connection)
{
    uint8_t frame[SMALL_FRAME_BYTES];
    struct session *session = &connection->session;
    for (int attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
        unsigned client_port;
        int fd = connect_once(&client_port);
        ask_and_wait(fd, frame, is_vsr() ? write_vsr_ping(frame, session) : write_ping(frame));
        if (options.at_process == 0 ||
            holds_socket(options.at_process, find_inode(options.port, client_port))) {
            log_in(connection, fd);
            fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
            return fd;
        }
        close(fd);
    }
    fail("no connection reached process %d", options.at_process);
}

/* ---- asking ---------------------------------------------------------------------------- */

/* Write the request that a connection repeats; return its size. */
static size_t write_repeated(struct connection *connection, uint8_t *space)
{
    const struct session *session = &connection->session;
    if (options.work == SEND)
        return is_vsr() ? write_vsr_send(space, session, &connection->batch)
                        : write_send(space, &connection->batch);
    return is_vsr() ? write_vsr_ping(space, session) : write_ping(space);
}

static void make_template(struct connection *connection)
{
    size_t frame_max =
        options.work == SEND ? send_frame_bytes_max(&connection->batch) : VSR_HEAD_BYTES;
    size_t copies = frame_max >= TEMPLATE_BYTES ? 1 : TEMPLATE_BYTES / frame_max;
    if (copies > (size_t)options.window)
        copies = (size_t)options.window;
    connection->template = malloc(copies * frame_max);
    if (connection->template == NULL)
        fail("no memory");
    size_t size = write_repeated(connection, connection->template);
    for (size_t i = 1; i < copies; i++)
        memcpy(connection->template + i * size, connection->template, size);
    connection->frame_bytes = size;
    connection->template_frames = (int)copies;
}

static void open_connection(struct connection *connection, int number)
{
    connection->batch = options.batch;
    connection->batch.partition = options.partition + (uint32_t)(number % options.partitions);
    choose_client(&connection->session);
    connection->fd = connect_and_login(connection);
    connection->started = calloc((size_t)options.window, sizeof *connection->started);
    if (connection->started == NULL)
        fail("no memory");
    make_template(connection);
}

static int compose_polls(struct connection *connection, int room)
{
    int count = room < POLLS_PER_GROUP ? room : POLLS_PER_GROUP;
    uint8_t *at = connection->polls;
    for (int i = 0; i < count; i++) {
        if (connection->offset + connection->batch.messages > options.stored)
            connection->offset = 0;
        if (is_vsr()) {
            size_t size =
                write_vsr_poll(at, &connection->session, &connection->batch, connection->offset);
            put_number(connection, at);
            at += size;
        } else {
            at += write_poll(at, &connection->batch, connection->offset);
        }
        connection->offset += connection->batch.messages;
    }
    connection->out = connection->polls;
    connection->out_left = (size_t)(at - connection->polls);
    return count;
}

static int compose_copies(struct connection *connection, int room)
{
    int count = room < connection->template_frames ? room : connection->template_frames;
    if (is_vsr())
        for (int i = 0; i < count; i++)
            put_number(connection, connection->template + (size_t)i * connection->frame_bytes);
    connection->out = connection->template;
    connection->out_left = (size_t)count * connection->frame_bytes;
    return count;
}

/* Put the next requests on the way, as many as the window has room for. */
static bool compose(struct connection *connection)
{
    int room = options.window - connection->in_flight;
    if (options.requests_max != 0 && asked_count + (uint64_t)room > options.requests_max)
        room = (int)(options.requests_max - asked_count);
    if (room <= 0 || is_closing)
        return false;
    int count = options.work == POLL ? compose_polls(connection, room)
                                     : compose_copies(connection, room);
    uint64_t now = now_ns();
    for (int i = 0; i < count; i++) {
        connection->started[connection->next_started] = now;
        connection->next_started = (connection->next_started + 1) % options.window;
    }
    connection->in_flight += count;
    asked_count += (uint64_t)count;
    return true;
}

static void send_more(struct connection *connection)
{
    while (connection->out_left != 0 || compose(connection)) {
        ssize_t size = send(connection->fd, connection->out, connection->out_left, MSG_NOSIGNAL);
        if (size < 0) {
            if (errno == EAGAIN)
                return;
            fail("cannot send: %s", strerror(errno));
        }
        connection->out += size;
        connection->out_left -= (size_t)size;
    }
}

/* ---- hearing --------------------------------------------------------------------------- */

static void answered(struct connection *connection, uint64_t now)
{
    if (options.work == POLL) {
        uint32_t count;
        memcpy(&count, connection->polled + AT_POLLED_COUNT, sizeof count);
        if (count != connection->batch.messages)
            fail("a poll returned %u messages of %u", count, connection->batch.messages);
    }
    note(&histogram, now - connection->started[connection->first_started]);
    connection->first_started = (connection->first_started + 1) % options.window;
    connection->in_flight--;
    connection->head_have = connection->polled_have = 0;
    answers_count++;
    last_answer_ns = now;
}

static size_t take_head(struct connection *connection, const uint8_t *at, size_t left)
{
    size_t missing = head_bytes() - connection->head_have;
    size_t size = left < missing ? left : missing;
    memcpy(connection->head + connection->head_have, at, size);
    connection->head_have += size;
    if (connection->head_have == head_bytes())
        connection->body_left = read_answer(connection->head);
    return size;
}

static size_t take_body(struct connection *connection, const uint8_t *at, size_t left)
{
    size_t size = left < connection->body_left ? left : connection->body_left;
    size_t missing = POLLED_HEAD_BYTES - connection->polled_have;
    size_t peeked = size < missing ? size : missing;
    memcpy(connection->polled + connection->polled_have, at, peeked);
    connection->polled_have += peeked;
    connection->body_left -= size;
    return size;
}

static void hear(struct connection *connection)
{
    for (;;) {
        ssize_t size = recv(connection->fd, received, sizeof received, 0);
        if (size < 0 && errno == EAGAIN)
            return;
        if (size <= 0)
            fail("the server closed the connection");
        uint64_t now = now_ns();
        const uint8_t *at = received, *end = received + size;
        while (at < end) {
            size_t left = (size_t)(end - at);
            at += connection->head_have < head_bytes() ? take_head(connection, at, left)
                                                     : take_body(connection, at, left);
            if (connection->head_have == head_bytes() && connection->body_left == 0)
                answered(connection, now);
        }
        if (size < (ssize_t)sizeof received)
            return;
    }
}

/* ---- phases ---------------------------------------------------------------------------- */

static bool is_drained(void)
{
    for (int i = 0; i < options.connections; i++)
        if (connections[i].in_flight != 0)
            return false;
    return true;
}

static void check_end(uint64_t deadline)
{
    bool is_enough = options.requests_max != 0 && asked_count >= options.requests_max;
    is_closing = is_closing || is_enough || now_ns() >= deadline;
}

static void run_events(int epoll, uint64_t deadline)
{
    struct epoll_event events[CONNECTIONS_MAX];
    for (int i = 0; i < options.connections; i++)
        send_more(&connections[i]);
    while (!is_closing || !is_drained()) {
        int count = epoll_wait(epoll, events, CONNECTIONS_MAX, STALL_MS);
        if (count == 0)
            fail("no answer for %d ms", STALL_MS);
        for (int i = 0; i < count; i++) {
            struct connection *connection = &connections[events[i].data.u32];
            hear(connection);
            check_end(deadline);
            send_more(connection);
        }
    }
}

/* One request at a time with a pause in between, for those who look on while others work. */
static void run_paced(struct connection *connection, uint64_t deadline)
{
    struct timespec pause = {0, options.pace_us * 1000L};
    fcntl(connection->fd, F_SETFL, fcntl(connection->fd, F_GETFL) & ~O_NONBLOCK);
    while (!is_closing) {
        nanosleep(&pause, NULL);
        uint64_t began = now_ns();
        if (is_vsr())
            put_number(connection, connection->template);
        ask_and_wait(connection->fd, connection->template, connection->frame_bytes);
        last_answer_ns = now_ns();
        note(&histogram, last_answer_ns - began);
        asked_count++;
        answers_count++;
        check_end(deadline);
    }
}

static double run_phase(int epoll, double seconds)
{
    memset(&histogram, 0, sizeof histogram);
    answers_count = asked_count = 0;
    is_closing = seconds <= 0;
    uint64_t began = last_answer_ns = now_ns();
    uint64_t deadline = began + (uint64_t)(seconds * 1e9);
    if (options.pace_us > 0)
        run_paced(&connections[0], deadline);
    else
        run_events(epoll, deadline);
    return (double)(last_answer_ns - began) / 1e9;
}

static int watch_all(void)
{
    int epoll = epoll_create1(0);
    for (int i = 0; i < options.connections; i++) {
        open_connection(&connections[i], i);
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET};
        event.data.u32 = (uint32_t)i;
        epoll_ctl(epoll, EPOLL_CTL_ADD, connections[i].fd, &event);
    }
    return epoll;
}

int main(int count, char **words)
{
    char line[16];
    xxh3_long = XXH3_LEVELS[xxh3_levels_here() - 1].function;
    take_options(count, words);
    if (options.core >= 0) {
        cpu_set_t cores;
        CPU_ZERO(&cores);
        CPU_SET(options.core, &cores);
        sched_setaffinity(0, sizeof cores, &cores);
    }
    int epoll = watch_all();
    run_phase(epoll, options.warm_seconds);
    printf("ready\n");
    fflush(stdout);
    if (fgets(line, sizeof line, stdin) == NULL)
        return 1;
    double seconds = run_phase(epoll, options.seconds);
    printf("{\"requests\":%llu,\"seconds\":%.6f,\"max_ns\":%llu,\"buckets\":",
           (unsigned long long)answers_count, seconds, (unsigned long long)histogram.max_ns);
    print_buckets(&histogram);
    printf("}\n");
    return 0;
}

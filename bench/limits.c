/*
 * What this machine can do at best, without any server: the ceiling above every other figure.
 *
 *   limits DIRECTORY SERVER_CORE CLIENT_CORE
 *
 * Prints one line of JSON. MB are 10^6 bytes.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    MIB = 1 << 20,
    SMALL_BYTES = 64,
    ACK_BYTES = 8,
    RECORD_BYTES = 1088,
    FRAMES = 300,
    PINGS = 3000,
    APPENDS = 256,
    SYNCS = 60,
};

static uint8_t block[MIB];

static void check(bool is_well, const char *what)
{
    if (!is_well) {
        fprintf(stderr, "limits: %s: %s\n", what, strerror(errno));
        exit(1);
    }
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void pin(int core)
{
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(core, &cores);
    sched_setaffinity(0, sizeof cores, &cores);
}

static double mb_s(int blocks, double seconds)
{
    return blocks * (MIB / 1e6) / seconds;
}

/* ---- loopback -------------------------------------------------------------------------- */

static void send_exactly(int fd, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t sent = send(fd, block + done, size - done, MSG_NOSIGNAL);
        check(sent > 0, "send");
        done += (size_t)sent;
    }
}

static void receive_exactly(int fd, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t received = recv(fd, block + done, size - done, 0);
        check(received > 0, "receive");
        done += (size_t)received;
    }
}

/* The client: small requests, large requests with small answers, small requests for large ones. */
static void be_client(const struct sockaddr_in *address)
{
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    check(connect(fd, (const struct sockaddr *)address, sizeof *address) == 0, "connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    for (int i = 0; i < PINGS; i++) {
        send_exactly(fd, SMALL_BYTES);
        receive_exactly(fd, SMALL_BYTES);
    }
    for (int i = 0; i < FRAMES; i++) {
        send_exactly(fd, MIB);
        receive_exactly(fd, ACK_BYTES);
    }
    for (int i = 0; i < FRAMES; i++) {
        send_exactly(fd, ACK_BYTES);
        receive_exactly(fd, MIB);
    }
}

static void send_from_file(int fd, int file)
{
    for (off_t at = 0; at < MIB;)
        check(sendfile(fd, file, &at, (size_t)(MIB - at)) > 0, "sendfile");
}

static void measure_loopback(int file, int client_core)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    check(bind(listener, (struct sockaddr *)&address, sizeof address) == 0, "bind");
    check(listen(listener, 1) == 0, "listen");
    getsockname(listener, (struct sockaddr *)&address, &length);
    pid_t client = fork();
    if (client == 0) {
        pin(client_core);
        be_client(&address);
        _exit(0);
    }
    int fd = accept(listener, NULL, NULL);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    double began = now_s();
    for (int i = 0; i < PINGS; i++) {
        receive_exactly(fd, SMALL_BYTES);
        send_exactly(fd, SMALL_BYTES);
    }
    double pinged = now_s();
    for (int i = 0; i < FRAMES; i++) {
        receive_exactly(fd, MIB);
        send_exactly(fd, ACK_BYTES);
    }
    double received = now_s();
    for (int i = 0; i < FRAMES; i++) {
        receive_exactly(fd, ACK_BYTES);
        send_from_file(fd, file);
    }
    waitpid(client, NULL, 0);
    double sent = now_s();
    printf("\"ping_pong_us\":%.1f,\"request_ack_mb_s\":%.0f,\"sendfile_mb_s\":%.0f,",
           (pinged - began) / PINGS * 1e6, mb_s(FRAMES, received - pinged),
           mb_s(FRAMES, sent - received));
    close(fd);
    close(listener);
}

/* ---- files ----------------------------------------------------------------------------- */

static int new_file(const char *directory)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/limits.data", directory);
    int file = open(path, O_CREAT | O_RDWR | O_TRUNC, 0600);
    check(file >= 0, path);
    check(unlink(path) == 0, path);
    return file;
}

static double append(int file, int count, size_t size, bool is_synced)
{
    double began = now_s();
    for (int i = 0; i < count; i++) {
        check(pwrite(file, block, size, (off_t)i * (off_t)size) == (ssize_t)size, "write");
        if (is_synced)
            check(fdatasync(file) == 0, "sync");
    }
    return now_s() - began;
}

static void measure_appends(const char *directory)
{
    int file = new_file(directory);
    double appended = append(file, APPENDS, MIB, false);
    close(file);
    file = new_file(directory);
    double synced = append(file, SYNCS, MIB, true);
    close(file);
    file = new_file(directory);
    double small = append(file, SYNCS, RECORD_BYTES, true);
    close(file);
    printf("\"append_mb_s\":%.0f,\"fdatasync_mb_s\":%.0f,\"fdatasync_us\":%.0f",
           mb_s(APPENDS, appended), mb_s(SYNCS, synced), small / SYNCS * 1e6);
}

int main(int count, char **words)
{
    if (count < 4) {
        fprintf(stderr, "limits DIRECTORY SERVER_CORE CLIENT_CORE\n");
        return 2;
    }
    pin(atoi(words[2]));
    memset(block, 7, sizeof block);
    int file = new_file(words[1]);
    append(file, 1, MIB, false);
    printf("{");
    fflush(stdout);
    measure_loopback(file, atoi(words[3]));
    measure_appends(words[1]);
    printf("}\n");
    return 0;
}

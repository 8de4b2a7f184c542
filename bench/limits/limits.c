/* The least that a client can do: the commands of a job, from one connection, in C.
 *
 *     limits PORT MODE JOBS BATCH
 *
 * add           XADD of BATCH jobs in one write, then their replies; as one add is sent, with IDMP
 * add-large     the same with 4 KB of payload
 * add-told      as add, and for each job the event `waiting` in the same write
 * drain         XREADGROUP of BATCH entries; the acknowledgement leaves with the next read
 * drain-events  the same, with two events a job in the same write
 *
 * IDMP, CLAIM and XACKDEL are used where the server has them, else what does the same without.
 * Prints one line of JSON, as every measured program. No library but libc: replies are parsed here,
 * as far as they are needed.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define STREAM "{chasqui:limit}:stream"
#define EVENTS "{chasqui:limit}:events"
#define PRODUCER "dadf16da-0d16-43cf-a4c9-c8b8d96126d2"
#define MOST_BATCH 1024
#define ID_BYTES 48

static int sock;
static char *out, *in;
static size_t out_size, out_cap, in_size, in_cap, in_at;
static char payload[8192];
static size_t payload_size = 95;
static int is_modern, tells;

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static double cpu_s(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_utime.tv_sec + used.ru_utime.tv_usec * 1e-6 + used.ru_stime.tv_sec +
           used.ru_stime.tv_usec * 1e-6;
}

/* --- requests: words are gathered in `out` and leave in one write */

static void put(const void *bytes, size_t size) {
    if (out_size + size > out_cap) {
        out_cap = (out_size + size) * 2;
        if (!(out = realloc(out, out_cap))) fail("out of memory");
    }
    memcpy(out + out_size, bytes, size);
    out_size += size;
}

static void head(char kind, long value) {
    char text[32];
    put(text, snprintf(text, sizeof text, "%c%ld\r\n", kind, value));
}

static void word(const char *bytes, size_t size) {
    head('$', size);
    put(bytes, size);
    put("\r\n", 2);
}

static void words(int count, ...) {
    va_list given;
    va_start(given, count);
    while (count--) {
        const char *each = va_arg(given, const char *);
        word(each, strlen(each));
    }
    va_end(given);
}

static void flush(void) {
    for (size_t sent = 0; sent < out_size;) {
        ssize_t n = write(sock, out + sent, out_size - sent);
        if (n <= 0) fail("the server has closed the connection");
        sent += n;
    }
    out_size = 0;
}

/* --- replies: `in` is a window on the connection; what was parsed is dropped when more is read */

static void more(void) {
    if (in_at) {
        memmove(in, in + in_at, in_size - in_at);
        in_size -= in_at;
        in_at = 0;
    }
    if (in_size == in_cap && !(in = realloc(in, in_cap = in_cap ? in_cap * 2 : 1 << 20)))
        fail("out of memory");
    ssize_t n = read(sock, in + in_size, in_cap - in_size);
    if (n <= 0) fail("the server has closed the connection");
    in_size += n;
}

/* The kind of the next reply or part of one, and its number; an error ends the program. */
static char next(long *value) {
    char *end;
    while (!(end = in_size - in_at < 4 ? NULL : memchr(in + in_at, '\n', in_size - in_at))) more();
    char kind = in[in_at];
    if (kind == '-') {
        *end = 0;
        fail(in + in_at);
    }
    *value = kind == '+' ? 0 : strtol(in + in_at + 1, NULL, 10);
    in_at = end + 1 - in;
    return kind;
}

/* The bytes of a text; valid until the next one is asked for. */
static char *bytes_of(long size) {
    while (in_size - in_at < (size_t)size + 2) more();
    char *found = in + in_at;
    in_at += size + 2;
    return found;
}

static void skip(void) {
    long value;
    switch (next(&value)) {
    case '$':
        if (value >= 0) bytes_of(value);
        break;
    case '*':
        for (; value > 0; value--) skip();
    }
}

static double server_cpu_s(void) {
    long size;
    head('*', 2);
    words(2, "INFO", "cpu");
    flush();
    next(&size);
    char *text = bytes_of(size), *user, *sys;
    text[size] = 0;
    user = strstr(text, "used_cpu_user:");
    sys = strstr(text, "used_cpu_sys:");
    return (user ? atof(user + 14) : 0) + (sys ? atof(sys + 13) : 0);
}

/* IDMP is the newest of what is used: where it works, the others do. */
static int has_idmp(void) {
    head('*', 8);
    words(8, "XADD", "{chasqui:limit}:probe", "IDMP", "p", "i", "*", "d", "x");
    flush();
    while (in_size == in_at) more();
    char kind = in[in_at];
    if (kind == '-') {
        while (!memchr(in + in_at, '\n', in_size - in_at)) more();
        in_at = in_size;
    } else {
        skip();
    }
    return kind != '-';
}

static void add(long number) {
    char id[32];
    snprintf(id, sizeof id, "%026ld", number);
    head('*', is_modern ? 13 : 10);
    words(2, "XADD", STREAM);
    if (is_modern) words(3, "IDMP", PRODUCER, id);
    words(5, "MAXLEN", "~", "10000000", "*", "d");
    word(payload, payload_size);
    words(2, "n", "x");
    if (!tells) return;
    head('*', 14);
    words(8, "XADD", EVENTS, "MAXLEN", "~", "100000", "*", "e", "waiting");
    words(6, "id", id, "ts", "1794767557044", "n", "x");
}

static void add_all(long jobs, long batch) {
    for (long done = 0; done < jobs;) {
        long sent = 0;
        for (; sent < batch && done < jobs; sent++, done++) add(done);
        flush();
        for (long replies = tells ? 2 * sent : sent; replies--;) skip();
    }
}

static void ask(long batch) {
    char count[32];
    snprintf(count, sizeof count, "%ld", batch);
    head('*', is_modern ? 11 : 9);
    words(6, "XREADGROUP", "GROUP", "g", "c", "COUNT", count);
    if (is_modern) words(2, "CLAIM", "30000");
    words(3, "STREAMS", STREAM, ">");
}

/* The ids of the entries of a read; 0 if there were none. */
static long entries(char ids[][ID_BYTES]) {
    long value, count, size;
    if (next(&value) == '_' || value <= 0) return 0;
    next(&value); /* the stream's name and its entries */
    skip();
    next(&count);
    for (long at = 0; at < count; at++) {
        long parts;
        next(&parts); /* id, fields and, for what was claimed, two numbers */
        next(&size);
        if (size < 0 || size >= ID_BYTES || at >= MOST_BATCH) fail("this is not what was asked for");
        memcpy(ids[at], bytes_of(size), size);
        ids[at][size] = 0;
        while (--parts) skip();
    }
    return count;
}

static void tell(const char *id) {
    head('*', 16);
    words(8, "XADD", EVENTS, "MAXLEN", "~", "100000", "*", "e", "active");
    words(8, "id", id, "ts", "1794767557045", "n", "x", "attempt", "1");
    head('*', 18);
    words(8, "XADD", EVENTS, "MAXLEN", "~", "100000", "*", "e", "completed");
    words(8, "id", id, "ts", "1794767557046", "n", "x", "attempt", "1");
    words(2, "duration_us", "550");
}

static int acknowledge(char ids[][ID_BYTES], long count) {
    char text[32];
    snprintf(text, sizeof text, "%ld", count);
    if (is_modern) {
        head('*', count + 5);
        words(5, "XACKDEL", STREAM, "g", "IDS", text);
        for (long at = 0; at < count; at++) words(1, ids[at]);
        return 1;
    }
    head('*', count + 3);
    words(3, "XACK", STREAM, "g");
    for (long at = 0; at < count; at++) words(1, ids[at]);
    head('*', count + 2);
    words(2, "XDEL", STREAM);
    for (long at = 0; at < count; at++) words(1, ids[at]);
    return 2;
}

static void drain_all(long batch, int has_events) {
    static char ids[MOST_BATCH][ID_BYTES];
    ask(batch);
    flush();
    for (long count; (count = entries(ids));) {
        long replies = 0;
        if (has_events)
            for (long at = 0; at < count; at++, replies += 2) tell(ids[at]);
        replies += acknowledge(ids, count);
        ask(batch);
        flush();
        while (replies--) skip();
    }
}

static void connect_to(int port) {
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_port = htons(port)};
    int yes = 1;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sock = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(sock, (struct sockaddr *)&place, sizeof place)) fail("there is no server");
    setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

int main(int count, char **given) {
    if (count != 5) fail("usage: limits PORT MODE JOBS BATCH");
    const char *mode = given[2];
    long jobs = atol(given[3]), batch = atol(given[4]);
    if (batch < 1 || batch > MOST_BATCH) fail("BATCH must be from 1 to 1024");
    connect_to(atoi(given[1]));
    memset(payload, 'p', sizeof payload);
    if (!strcmp(mode, "add-large")) payload_size = 4096;
    tells = !strcmp(mode, "add-told");
    is_modern = has_idmp();
    int drains = !strncmp(mode, "drain", 5);
    if (drains) {
        add_all(jobs, 500);
        head('*', 5);
        words(5, "XGROUP", "CREATE", STREAM, "g", "0");
        flush();
        skip();
    }
    double server = server_cpu_s(), cpu = cpu_s(), began = now_s();
    if (drains)
        drain_all(batch, !strcmp(mode, "drain-events"));
    else
        add_all(jobs, batch);
    double took = now_s() - began;
    cpu = cpu_s() - cpu;
    server = server_cpu_s() - server;
    printf("{\"figures\": {\"jobs\": %ld, \"seconds\": %.6f, \"rate\": %.1f, \"client_us\": %.3f, "
           "\"server_us\": %.3f}}\n",
           jobs, took, jobs / took, cpu / jobs * 1e6, server / jobs * 1e6);
    return 0;
}

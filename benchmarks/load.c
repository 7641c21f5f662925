/* Sends prepared frames over several connections, keeps a fixed number in flight on each, and times the answers.
 *
 *   load HOST PORT CONNECTIONS IN_FLIGHT FRAMES FILE ID_AT FORM [HELLO [RATE [THEN]]]
 *
 * FILE: frames one behind the other, each behind its length in 4 big-endian bytes; connection c starts with frame c and goes
 * round. IN_FLIGHT is per connection, FRAMES in all. FORM says what frames and answers are:
 *   be32, dec9   the length is sent too, and answers have one; at ID_AT of every frame lies the request id (4 bytes, big-endian,
 *                or nine decimal digits)
 *   crlf2        the length is not sent; at ID_AT (0: nowhere), and in HELLO where it says @@@@, comes the connection's number in
 *                four digits; each answer is two lines that end with CR LF (Redis, NATS); lines that begin with P are no answers
 *   amqp         the same, but answers are the acknowledgements of AMQP 0-9-1 for published messages
 * Answers come in any order per connection; each is timed against the oldest unanswered request of its connection. HELLO: a file
 * with one frame that opens every connection; its answer is not counted. With crlf2 and amqp the bytes behind that frame say how
 * its answer ends. RATE: frames a second in all, each timed from the moment it was due, so that a broker that falls behind is
 * seen; without it as fast as the answers come. THEN (with dec9): a file with a header in JSON of RocketMQ's, which is sent when a
 * request was answered. Behind a send (a half) only its answer counts, if it asks for one; at each @ in it comes, in this order:
 * the queue offset, the place in the log, the message id, and the transaction id that the first answer told, and the id of the
 * request. Behind a pop (code 200050) it is sent for each message that came, FRAMES are these messages, IN_FLIGHT the pops whose
 * messages are not all acknowledged, and each @ is: the queue; of the receipt its start, pop time, invisible time, revive queue,
 * flag, queue and offset; the offset; and the id. Then times say nothing. One line of JSON on stdout. It looks at the lengths of answers only: whoever
 * runs it checks what they say.
 */
#define _GNU_SOURCE /* ppoll */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { OUT_BYTES = 1 << 20, IN_BYTES = 1 << 18, MOST_FRAMES = 4096, HEAD = 4, MOST_APART = 4096, TEXT = 4096, PHASES = 64, POPPED = 32 };

struct link {
    int socket, pending;                  /* requests without an answer */
    int next_frame;
    uint32_t id;
    unsigned char *out;                   /* bytes [out_from, out_to) wait for the socket */
    long out_from, out_to;
    unsigned char head[HEAD];             /* length of the answer that is arriving */
    int head_have;
    uint32_t body_left;
    char text[TEXT];                      /* THEN: the beginning of that answer */
    size_t text_have;
    int unacknowledged[PHASES];           /* of each pop under way */
    double rests_until;                   /* a pop found nothing */
    char name[HEAD + 1];                  /* crlf2, amqp: goes to ID_AT, and into HELLO for @@@@ */
    int lines, line_begun, ignored;       /* crlf2: whole lines of the answer, and whether this line counts */
    unsigned char frame[32];              /* amqp: the beginning of the frame that is arriving */
    uint32_t frame_have;
    uint64_t acknowledged;                /* all up to this one, and those in `apart` */
    unsigned char apart[MOST_APART];
    double *asked;                        /* ring of moments, IN_FLIGHT long */
    long first, last;
};

static unsigned char *frames;
static long frame_at[MOST_FRAMES], frame_size[MOST_FRAMES], id_at;
static int frame_count, in_flight, skipped;       /* skipped: bytes of each frame that are not sent */
static enum { BE32, DEC9, CRLF2, AMQP } form;
static long to_ask, answered, wanted;
static double rate, began;
static uint64_t answer_bytes;
static float *times_us;
static char then[TEXT];
static int pops, oneway;                          /* FRAMES are popped messages; THEN is not answered */

static void die(const char *what) {
    fprintf(stderr, "load: %s%s%s\n", what, errno ? ": " : "", errno ? strerror(errno) : "");
    exit(1);
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static uint32_t big_endian(const unsigned char *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void read_frames(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) die(path);
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    frames = malloc((size_t)size);
    if (fread(frames, 1, (size_t)size, file) != (size_t)size) die(path);
    fclose(file);
    for (long at = 0; at + HEAD <= size && frame_count < MOST_FRAMES; at += frame_size[frame_count++]) {
        frame_at[frame_count] = at;
        frame_size[frame_count] = HEAD + (long)big_endian(frames + at);
    }
    errno = 0;
    if (!frame_count || frame_at[frame_count - 1] + frame_size[frame_count - 1] != size) die("the file does not end with a whole frame");
}

static void nine_digits(char *digits, uint32_t id) { snprintf(digits, 10, "%09u", 100000000u + id % 900000000u); }

static void write_id(unsigned char *frame, uint32_t id) {
    char digits[10];
    if (form == DEC9) {
        nine_digits(digits, *then ? PHASES * id : id);     /* the rest tells what comes THEN */
        memcpy(frame + id_at, digits, 9);
        return;
    }
    uint32_t swapped = htonl(id | 0x80000000u);       /* the high bit: as wide in msgpack as the prepared one */
    memcpy(frame + id_at, &swapped, 4);
}

static void read_then(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file || form != DEC9) die(path);
    size_t size = fread(then, 1, sizeof then, file);
    fclose(file);
    if (!size || size == sizeof then) die("what comes THEN is empty or too long");
    pops = !memmem(then, size, "\"code\":37,", 10);
    oneway = !!memmem(then, size, "\"flag\":2,", 9);
}

static double due(void) { return began + (double)(wanted - to_ask) / rate; }        /* of the next frame */

static int has_room(struct link *l, long size) {      /* a broker that reads slowly never lets the buffer run empty */
    if (l->out_to + size <= OUT_BYTES) return 1;
    memmove(l->out, l->out + l->out_from, (size_t)(l->out_to - l->out_from));
    l->out_to -= l->out_from, l->out_from = 0;
    return l->out_to + size <= OUT_BYTES;
}

static void ask(struct link *l, double now) {         /* fill the window with requests that are due */
    if (l->out_from == l->out_to) l->out_from = l->out_to = 0;
    while (l->pending < in_flight && to_ask > 0 && (!rate || due() <= now) && now >= l->rests_until) {
        long size = frame_size[l->next_frame] - skipped;
        if (!has_room(l, size)) break;
        memcpy(l->out + l->out_to, frames + frame_at[l->next_frame] + skipped, (size_t)size);
        if (!skipped) write_id(l->out + l->out_to, l->id++);
        else if (id_at) memcpy(l->out + l->out_to + id_at, l->name, HEAD);
        l->out_to += size;
        l->next_frame = (l->next_frame + 1) % frame_count;
        l->asked[l->last++ % in_flight] = rate ? due() : now;
        l->pending++;
        to_ask -= pops ? POPPED : 1;
    }
}

static void push(struct link *l) {
    while (l->out_from < l->out_to) {
        ssize_t n = send(l->socket, l->out + l->out_from, (size_t)(l->out_to - l->out_from), MSG_NOSIGNAL);
        if (n > 0) l->out_from += n;
        else if (errno == EAGAIN || errno == EWOULDBLOCK) return;
        else if (errno != EINTR) die("the broker closed a connection while we wrote");
    }
}

static void count_answer(struct link *l, double now) {
    if (!l->pending) die("an answer that nobody asked for");
    times_us[answered++] = (float)((now - l->asked[l->first++ % in_flight]) * 1e6);
    l->pending--;
}

static void take_lines(struct link *l, const unsigned char *p, ssize_t n, double now) {
    answer_bytes += (uint64_t)n;
    for (; n > 0; p++, n--) {
        if (!l->line_begun) {
            if (*p == '-') die("the broker refused a request");
            l->line_begun = 1;
            l->ignored = *p == 'P' && !l->lines;
        }
        if (*p != '\n') continue;
        l->line_begun = 0;
        if (l->ignored || ++l->lines < 2) continue;
        l->lines = 0;
        count_answer(l, now);
    }
}

static void take_amqp(struct link *l, const unsigned char *p, ssize_t n, double now) {
    answer_bytes += (uint64_t)n;
    for (; n > 0; p++, n--) {
        if (l->frame_have < sizeof l->frame) l->frame[l->frame_have] = *p;
        l->frame_have++;
        if (l->frame_have < 8 || l->frame_have < 8 + big_endian(l->frame + 3)) continue;
        l->frame_have = 0;
        if (l->frame[0] == 8) continue;                                       /* a heartbeat */
        uint32_t method = big_endian(l->frame + 7);
        if (method != (60u << 16 | 80)) die("the broker refused a message");  /* basic.ack: delivery tag, multiple */
        uint64_t tag = (uint64_t)big_endian(l->frame + 11) << 32 | big_endian(l->frame + 15);
        for (uint64_t one = l->frame[19] & 1 ? l->acknowledged + 1 : tag; one <= tag; one++) {
            if (!l->apart[one % MOST_APART]) count_answer(l, now);
            l->apart[one % MOST_APART] = 1;
        }
        for (; l->apart[(l->acknowledged + 1) % MOST_APART]; l->acknowledged++) l->apart[(l->acknowledged + 1) % MOST_APART] = 0;
    }
}

static void value_of(const char *text, const char *mark, char end, char *value, size_t room) {
    const char *at = strstr(text, mark), *stop = at ? strchr(at + strlen(mark), end) : NULL;
    if (!stop) die("an answer without a field that was expected");
    at += strlen(mark);
    if ((size_t)(stop - at) >= room) die("a field of an answer is too long");
    memcpy(value, at, (size_t)(stop - at));
    value[stop - at] = 0;
}

static void send_then(struct link *l, const char *const *values) {
    char frame[2 * TEXT], *to = frame + 2 * HEAD;
    for (const char *p = then; *p; p++) {
        if (*p != '@') *to++ = *p;
        else to = stpcpy(to, *values++);
    }
    uint32_t size = (uint32_t)(to - frame), lengths[2] = {htonl(size - HEAD), htonl(size - 2 * HEAD)};
    memcpy(frame, lengths, sizeof lengths);
    if (!has_room(l, size)) die("no room for what comes then");
    memcpy(l->out + l->out_to, frame, size);
    l->out_to += size;
}

static void end_half(struct link *l, const char *text, uint32_t id) {
    char queue_offset[32], place[32], message[64], transaction[64], digits[10];
    value_of(text, "\"queueOffset\":\"", '"', queue_offset, sizeof queue_offset);
    value_of(text, "\"msgId\":\"", '"', message, sizeof message);
    value_of(text, "\"transactionId\":\"", '"', transaction, sizeof transaction);
    if (strlen(message) < 32) die("a message id that is none");
    snprintf(place, sizeof place, "%llu", strtoull(message + 16, NULL, 16));
    nine_digits(digits, id | 1);
    send_then(l, (const char *const[]){queue_offset, place, message, transaction, digits});
}

static int acknowledge(struct link *l, const char *text, uint32_t id) {       /* how many messages came */
    char info[TEXT], starts[TEXT], at[32], hidden[32], revive[32], *rest = NULL, *more = NULL;
    int count = 0;
    value_of(text, "\"msgOffsetInfo\":\"", '"', info, sizeof info);
    value_of(text, "\"startOffsetInfo\":\"", '"', starts, sizeof starts);
    value_of(text, "\"popTime\":\"", '"', at, sizeof at);
    value_of(text, "\"invisibleTime\":\"", '"', hidden, sizeof hidden);
    value_of(text, "\"reviveQid\":\"", '"', revive, sizeof revive);
    for (char *part = strtok_r(info, ";", &rest); part; part = strtok_r(NULL, ";", &rest)) {
        char flag[8], queue[16], offsets[TEXT], place[32], start[32], digits[10];
        if (sscanf(part, "%7s %15s %4095s", flag, queue, offsets) != 3) die("a msgOffsetInfo that is none");
        snprintf(place, sizeof place, "%s %s ", flag, queue);
        const char *from = strstr(starts, place);
        if (!from || sscanf(from + strlen(place), "%31[0-9]", start) != 1) die("a startOffsetInfo that is none");
        for (char *offset = strtok_r(offsets, ",", &more); offset; offset = strtok_r(NULL, ",", &more)) {
            if (++count > POPPED) die("more messages than were asked for");
            nine_digits(digits, id | (uint32_t)count);
            send_then(l, (const char *const[]){queue, start, at, hidden, revive, flag, queue, offset, offset, digits});
        }
    }
    return count;
}

static void take_pop(struct link *l, const char *text, uint32_t id, double now) {
    int *left = &l->unacknowledged[id / PHASES % PHASES];
    if (id % PHASES) {                                /* an acknowledgement is answered */
        times_us[answered++] = 0;
        --*left;
    } else {
        int found = strstr(text, "\"code\":0,") ? acknowledge(l, text, id) : 0;
        to_ask += POPPED - found;
        *left = found;
        if (!found) l->rests_until = now + 0.01;
    }
    if (!*left) l->pending--;
}

static void take_text(struct link *l, double now) {   /* an answer in JSON came, and THEN something is to be sent */
    char opaque[16];
    const char *text = l->text + HEAD;                /* behind the length of its header */
    l->text[l->text_have] = 0;
    value_of(text, "\"opaque\":", ',', opaque, sizeof opaque);
    uint32_t id = (uint32_t)strtoul(opaque, NULL, 10) - 100000000u;
    int refused = !strstr(text, "\"code\":0,"), empty = strstr(text, "\"code\":209,") || strstr(text, "\"code\":210,");
    if (refused && !(pops && empty)) die("the broker refused a request");
    if (pops) take_pop(l, text, id, now);
    else if (id % PHASES) count_answer(l, now);
    else {
        end_half(l, text, id);
        if (oneway) count_answer(l, now);
    }
}

static void take(struct link *l, const unsigned char *p, ssize_t n, double now) {
    while (n > 0) {
        if (l->head_have < HEAD) {
            l->head[l->head_have++] = *p++;
            n--;
            if (l->head_have < HEAD) continue;
            l->body_left = big_endian(l->head);
            answer_bytes += HEAD + l->body_left;
            l->text_have = 0;
        }
        ssize_t step = n < (ssize_t)l->body_left ? n : (ssize_t)l->body_left;
        if (*then) {
            size_t room = TEXT - 1 - l->text_have, some = (size_t)step < room ? (size_t)step : room;
            memcpy(l->text + l->text_have, p, some);
            l->text_have += some;
        }
        p += step, n -= step, l->body_left -= (uint32_t)step;
        if (l->body_left) continue;
        if (*then) take_text(l, now);
        else count_answer(l, now);
        l->head_have = 0;
    }
}

static void pull(struct link *l, unsigned char *buffer) {
    ssize_t n = recv(l->socket, buffer, IN_BYTES, 0);
    if (n == 0) die("the broker closed a connection");
    if (n < 0 && errno != EAGAIN && errno != EINTR) die("read");
    if (n > 0) (form == CRLF2 ? take_lines : form == AMQP ? take_amqp : take)(l, buffer, n, seconds());
}

static void greet_raw(struct link *l, unsigned char *hello, size_t size) {
    unsigned char answer[65536];
    size_t asked = big_endian(hello), have = 0, end = size - HEAD - asked;
    unsigned char *mark = memmem(hello, size, "@@@@", HEAD);
    if (mark) memcpy(mark, l->name, HEAD);
    if (send(l->socket, hello + HEAD, asked, MSG_NOSIGNAL) != (ssize_t)asked) die("hello");
    while (have < end || memcmp(answer + have - end, hello + HEAD + asked, end)) {
        ssize_t n = have < sizeof answer ? recv(l->socket, answer + have, 1, 0) : 0;
        if (n <= 0) die("the answer to hello");
        have += (size_t)n;
    }
}

static void greet(struct link *l, const char *path) {     /* the socket still blocks */
    unsigned char hello[4096];
    FILE *file = fopen(path, "rb");
    if (!file) die(path);
    size_t size = fread(hello, 1, sizeof hello, file);
    fclose(file);
    if (skipped) {
        greet_raw(l, hello, size);
        return;
    }
    if (send(l->socket, hello, size, MSG_NOSIGNAL) != (ssize_t)size) die("hello");
    if (recv(l->socket, hello, HEAD, MSG_WAITALL) != HEAD) die("no answer to hello");
    uint32_t left = big_endian(hello);
    if (left > sizeof hello || recv(l->socket, hello, left, MSG_WAITALL) != (ssize_t)left) die("the answer to hello");
}

static void dial(struct link *l, const char *host, int port, const char *hello) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int on = 1;
    if (inet_pton(AF_INET, host, &to.sin_addr) != 1) die("HOST must be an IPv4 address");
    l->socket = socket(AF_INET, SOCK_STREAM, 0);
    if (l->socket < 0 || connect(l->socket, (struct sockaddr *)&to, sizeof to)) die("connect");
    setsockopt(l->socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (hello) greet(l, hello);
    fcntl(l->socket, F_SETFL, O_NONBLOCK);
    l->out = malloc(OUT_BYTES);
    l->asked = malloc(sizeof(double) * (size_t)in_flight);
}

static void drive(struct link *links, struct pollfd *polls, int count) {
    unsigned char *buffer = malloc(IN_BYTES);
    while (answered < wanted) {
        for (int i = 0; i < count; i++) {
            ask(&links[i], seconds());
            push(&links[i]);
            polls[i].fd = links[i].socket;
            polls[i].events = (short)(POLLIN | (links[i].out_from < links[i].out_to ? POLLOUT : 0));
        }
        struct timespec patience = {.tv_sec = 10};
        double left = rate && to_ask > 0 ? due() - seconds() : 10;
        if (pops) left = 0.01;
        if (left < 10) patience = (struct timespec){.tv_nsec = left > 0 ? (long)((left < 0.1 ? left : 0.1) * 1e9) : 10000};
        int ready = ppoll(polls, (nfds_t)count, &patience, NULL);
        errno = ready < 0 ? errno : 0;
        if (ready == 0 && patience.tv_sec) die("no answer for 10 s");
        for (int i = 0; i < count; i++)
            if (polls[i].revents & (POLLIN | POLLHUP | POLLERR)) pull(&links[i], buffer);
    }
    for (int i = 0; i < count; i++)                   /* what nobody answers */
        while (push(&links[i]), links[i].out_from < links[i].out_to) poll(&(struct pollfd){links[i].socket, POLLOUT, 0}, 1, 1000);
    free(buffer);
}

static int by_value(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double percentile(double share) { return times_us[(long)(share * (double)(wanted - 1))]; }

int main(int argc, char **argv) {
    if (argc < 9 || argc > 12) die("usage: load HOST PORT CONNECTIONS IN_FLIGHT FRAMES FILE ID_AT be32|dec9|crlf2|amqp [HELLO or '' [RATE [THEN]]]");
    int count = atoi(argv[3]);
    in_flight = atoi(argv[4]);
    wanted = to_ask = atol(argv[5]);
    read_frames(argv[6]);
    id_at = atol(argv[7]);
    const char *forms[] = {"be32", "dec9", "crlf2", "amqp"};
    for (int i = 0; i < 4; i++)
        if (!strcmp(argv[8], forms[i])) form = i;
    skipped = form == CRLF2 || form == AMQP ? HEAD : 0;
    rate = argc >= 11 ? atof(argv[10]) : 0;
    if (argc == 12) read_then(argv[11]);
    if (count < 1 || in_flight < 1 || in_flight >= MOST_APART || wanted < 1) die("CONNECTIONS, IN_FLIGHT and FRAMES must be at least 1, IN_FLIGHT below 4096");
    for (int i = 0; i < frame_count; i++)
        if (frame_size[i] > OUT_BYTES || (!skipped && (id_at < HEAD || id_at + (form == DEC9 ? 9 : 4) > frame_size[i]))) die("a frame is too long, or ID_AT lies outside");
    times_us = malloc(sizeof(float) * (size_t)(wanted + (pops ? POPPED * count * in_flight : 0)));
    struct link *links = calloc((size_t)count, sizeof *links);
    struct pollfd *polls = calloc((size_t)count, sizeof *polls);
    for (int i = 0; i < count; i++) {
        snprintf(links[i].name, sizeof links[i].name, "%04d", i % 10000);
        dial(&links[i], argv[1], atoi(argv[2]), argc > 9 && *argv[9] ? argv[9] : NULL);
        links[i].next_frame = i % frame_count;
    }
    began = seconds();
    drive(links, polls, count);
    double took = seconds() - began;
    qsort(times_us, (size_t)wanted, sizeof(float), by_value);
    printf("{\"frames\": %ld, \"answered\": %ld, \"seconds\": %.6f, \"answer_bytes\": %llu, \"p50_us\": %.1f, \"p90_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f}\n",
           wanted, answered, took, (unsigned long long)answer_bytes, percentile(0.5), percentile(0.9), percentile(0.99), percentile(0.999));
    return 0;
}

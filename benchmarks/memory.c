/* Takes so many MiB of memory, page by page, and times each: what a machine's own memory costs whoever takes it.
 *
 *   memory MIB
 *
 * One line of JSON on stdout: the longest time for one page, and how much of that was spent on a core (ms); microseconds of CPU
 * for a page.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static double ms(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

int main(int count, char **arguments) {
  size_t size = (count == 2 ? strtoul(arguments[1], NULL, 10) : 0) << 20, page = 4096;
  if (!size) {
    fputs("memory MIB: how much to take\n", stderr);
    return 2;
  }
  char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || madvise(memory, size, MADV_NOHUGEPAGE)) {
    perror("memory");
    return 1;
  }
  double longest = 0, on_core = 0, began = ms(CLOCK_THREAD_CPUTIME_ID);
  for (size_t at = 0; at < size; at += page) {
    double clock = ms(CLOCK_MONOTONIC), cpu = ms(CLOCK_THREAD_CPUTIME_ID);
    memory[at] = 1;
    double took = ms(CLOCK_MONOTONIC) - clock;
    if (took > longest) {
      longest = took;
      on_core = ms(CLOCK_THREAD_CPUTIME_ID) - cpu;
    }
  }
  double us = (ms(CLOCK_THREAD_CPUTIME_ID) - began) * 1e3 / (size / page);
  printf("{\"longest_ms\": %.2f, \"on_core_ms\": %.2f, \"us_a_page\": %.2f}\n", longest, on_core, us);
  return 0;
}

/* Launches the kernel that is linked with it on the pool: arguments from one file, arrays as they are then to another. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int tw_pool_start(void *pool, int64_t *handles, int64_t workers);
void *tw_pool_run(void *none, void **arguments, int64_t count);
void tw_pool_stop(void *pool, int64_t *handles, int64_t workers);
void tw_plan(void *words);
void tw_run(void *words);

/* What the pool asks of Python: no signal ever comes. */
int PyGILState_Ensure(void) { return 0; }
void PyGILState_Release(int state) { (void)state; }
int PyOS_InterruptOccurred(void) { return 0; }
void PyErr_SetInterrupt(void) {}
int PyErr_CheckSignals(void) { return 0; }
void *PyEval_SaveThread(void) { return 0; }
void PyEval_RestoreThread(void *state) { (void)state; }
void *PyErr_Occurred(void) { return 0; }
void *PyLong_AsVoidPtr(void *address) { return address; }
void Py_IncRef(void *object) { (void)object; }

void tw_program_failed(const char *text, void *launch, int64_t x, int64_t y, int64_t z) {
  (void)launch;
  printf("%s in workgroup (%d, %d, %d)", text, (int)x, (int)y, (int)z);
}

static void *garbage(int64_t bytes) {
  void *memory = aligned_alloc(4096, (bytes + 8191) / 4096 * 4096);
  memset(memory, 0xff, bytes);
  return memory;
}

int main(int argc, char **argv) {
  FILE *in = fopen(argv[1], "rb");
  int64_t head[7], pair[2], place[3];
  if (argc != 3 || fread(head, 8, 7, in) != 7) return 1;
  int64_t count = head[0], tail = head[1], scratch = head[2], threads = head[3];
  int64_t slots = head[4], regions = head[5], arrays = head[6];
  int64_t *words = garbage(8 * count), *sizes = garbage(8 * regions);
  char **memory = garbage(8 * regions);
  if (fread(words, 8, count, in) != (size_t)count) return 1;
  for (int64_t i = 0; i < regions; i++) {
    if (fread(pair, 8, 2, in) != 2) return 1;
    sizes[i] = pair[0];
    memory[i] = (char *)garbage(pair[0] + 64) + pair[1];
  }
  for (int64_t i = 0; i < arrays; i++) {
    if (fread(place, 8, 3, in) != 3) return 1;
    words[place[0]] = (int64_t)memory[place[1]] + place[2];
  }
  for (int64_t i = 0; i < regions; i++)
    if (fread(memory[i], 1, sizes[i], in) != (size_t)sizes[i]) return 1;

  char *pool = garbage(slots + 64 * threads);
  int64_t *handles = garbage(8 * threads);
  memset(pool, 0, slots + 64 * threads);
  if (tw_pool_start(pool, handles, threads - 1)) return 1;
  words[tail + 6] = (int64_t)pool;
  words[tail + 9] = threads;
  tw_plan(words);
  scratch += words[tail + 10];
  int64_t size = scratch * threads;
  char *block = garbage(size + words[tail + 7]);
  words[tail + 3] = (int64_t)block;
  words[tail + 4] = scratch;
  words[tail + 5] = (int64_t)(block + size);
  void *arguments[] = {pool, (void *)tw_run, words};
  tw_pool_run(0, arguments, 3);
  tw_pool_stop(pool, handles, threads - 1);

  FILE *out = fopen(argv[2], "wb");
  for (int64_t i = 0; i < regions; i++) fwrite(memory[i], 1, sizes[i], out);
  return fclose(out);
}

// Runs an image, or the same code in a shared library, in a process of another architecture than the test's.
//
//     loader HOST.so image ALIGN PLAN PAYLOAD..
//     loader HOST.so library LIBRARY.so SYMBOL PAYLOAD..
//
// HOST.so has the symbols that the sources import beside those of libc. A payload is its bytes in hexadecimal. For each, a line
// of output: the status, and the 64 numbers that the code wrote. A plan is what `emulated.rs` writes: words, relocations,
// imports, the read-execute part, the read-write part. It is trusted, as the image is.

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef uint32_t (*main_function)(void *payload, size_t n, void *target_args, void *context);

struct plan {
  uint64_t entry, rx_len, rw_at, rw_len, rw_mem, slot, imports, relocations;
};

struct relocation {
  uint64_t offset, import;  // No import: relative to the image's base.
  int64_t addend;
};

#define NONE UINT64_MAX

static void fail(const char *what, const char *which) {
  fprintf(stderr, "%s: %s\n", what, which);
  exit(1);
}

static unsigned char *read_file(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file || fseek(file, 0, SEEK_END)) fail("cannot open", path);
  long size = ftell(file);
  rewind(file);
  unsigned char *bytes = malloc(size + 1);
  if (!bytes || fread(bytes, 1, size, file) != (size_t)size) fail("cannot read", path);
  fclose(file);
  return bytes;
}

// A base that is a multiple of the alignment that the image states, and of no larger power of two: code that needs more fails.
static unsigned char *map(size_t len, uint64_t align) {
  int protection = PROT_READ | PROT_WRITE | PROT_EXEC;
  size_t all = len + 2 * align + (1 << 17);
  unsigned char *base = mmap(0, all, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) fail("cannot map", "memory for the image");
  uintptr_t at = ((uintptr_t)base + (1 << 16)) & ~(uintptr_t)0xffff;
  return (unsigned char *)(at + align);
}

static main_function load(const char *path, uint64_t align) {
  unsigned char *bytes = read_file(path);
  struct plan plan;
  memcpy(&plan, bytes, sizeof plan);
  unsigned char *next = bytes + sizeof plan;
  struct relocation *relocations = (struct relocation *)next;
  next += plan.relocations * sizeof *relocations;

  uintptr_t *got = calloc(plan.imports + 1, sizeof *got);
  for (uint64_t i = 0; i < plan.imports; i++) {
    int is_weak = *next++;
    const char *name = (const char *)next;
    next += strlen(name) + 1;
    got[i] = (uintptr_t)dlsym(RTLD_DEFAULT, name);
    if (!got[i] && !is_weak) fail("unresolved import", name);
  }

  size_t len = plan.rw_at + plan.rw_mem > plan.rx_len ? plan.rw_at + plan.rw_mem : plan.rx_len;
  unsigned char *base = map(len, align);
  memcpy(base, next, plan.rx_len);
  memcpy(base + plan.rw_at, next + plan.rx_len, plan.rw_len);
  for (uint64_t i = 0; i < plan.relocations; i++) {
    struct relocation *relocation = &relocations[i];
    uintptr_t of = relocation->import == NONE ? (uintptr_t)base : got[relocation->import];
    uintptr_t value = of + relocation->addend;
    memcpy(base + relocation->offset, &value, sizeof value);
  }
  if (plan.slot != NONE) memcpy(base + plan.slot, &got, sizeof got);
  __builtin___clear_cache((char *)base, (char *)base + len);
  return (main_function)(base + plan.entry);
}

static void run(main_function function, const char *hex) {
  size_t n = strlen(hex) / 2;
  unsigned char *payload = malloc(n + 1);
  for (size_t i = 0; i < n; i++) {
    unsigned byte;
    if (sscanf(hex + 2 * i, "%2x", &byte) != 1) fail("no payload", hex);
    payload[i] = byte;
  }
  uint64_t out[64] = {0};
  printf("%u", function(payload, n, out, 0));
  for (int i = 0; i < 64; i++) printf(" %llu", (unsigned long long)out[i]);
  printf("\n");
  fflush(stdout);
  free(payload);
}

int main(int argc, char **argv) {
  if (argc < 5) fail("usage", "loader HOST.so image ALIGN PLAN PAYLOAD.. | loader HOST.so library LIBRARY.so SYMBOL PAYLOAD..");
  if (!dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL)) fail("cannot open", dlerror());
  main_function function;
  if (!strcmp(argv[2], "image")) {
    function = load(argv[4], strtoull(argv[3], 0, 10));
  } else {
    void *library = dlopen(argv[3], RTLD_LAZY);
    if (!library) fail("cannot open", dlerror());
    function = (main_function)dlsym(library, argv[4]);
    if (!function) fail("no symbol", argv[4]);
  }
  for (int i = 5; i < argc; i++) run(function, argv[i]);
  return 0;
}

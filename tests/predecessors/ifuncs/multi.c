/* Compresses its payload on the source and decompresses it on the target, by libraries that both have; both print a hash of it. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <openssl/evp.h>
#include <zlib.h>

static void print_hash(const void *bytes, size_t size)
{
    unsigned char hash[EVP_MAX_MD_SIZE];
    unsigned length = 0, n;

    if (!EVP_Digest(bytes, size, hash, &length, EVP_sha256(), NULL)) {
        printf("no SHA-256\n");
        return;
    }
    printf("SHA-256 ");
    for (n = 0; n < length; n++)
        printf("%02X", hash[n]);
    printf("\n");
}

static int pack(const void *bytes, size_t size, void *payload, size_t *payload_size)
{
    uLongf packed = *payload_size;

    if (compress2((Bytef *)payload, &packed, (const Bytef *)bytes, size, Z_BEST_SPEED) != Z_OK)
        return -1;
    *payload_size = packed;
    printf("Compressed %zu bytes to %zu\n", size, *payload_size);
    print_hash(bytes, size);
    return 0;
}

#ifdef PAPER
size_t multi_payload_get_max_size(void *source_args, size_t source_args_size)
{
    (void)source_args;
    return sizeof(uint64_t) + compressBound(source_args_size);
}

/* The payload cannot shrink in this form, so its size goes in front. */
int multi_payload_init(void *payload, size_t payload_size, void *source_args, size_t source_args_size)
{
    size_t packed = payload_size - sizeof(uint64_t);

    if (pack(source_args, source_args_size, (uint64_t *)payload + 1, &packed))
        return -1;
    *(uint64_t *)payload = packed;
    return 0;
}
#else
size_t multi_payload_bound(void *source_args, size_t source_args_size)
{
    (void)source_args;
    return compressBound(source_args_size);
}

int multi_payload_init(void *source_args, size_t source_args_size, void *payload, size_t *payload_size)
{
    return pack(source_args, source_args_size, payload, payload_size);
}
#endif

void multi_main(void *payload, size_t payload_size, void *target_args)
{
    uLongf size = (uLongf)1 << 24;
    Bytef *bytes = (Bytef *)malloc(size);

    (void)target_args;
#ifdef PAPER
    payload_size = *(uint64_t *)payload;
    payload = (uint64_t *)payload + 1;
#endif
    if (bytes == NULL || uncompress(bytes, &size, (const Bytef *)payload, payload_size) != Z_OK) {
        printf("It does not decompress\n");
    } else {
        printf("Decompressed size %zu\n", (size_t)size);
        print_hash(bytes, size);
    }
    free(bytes);
}

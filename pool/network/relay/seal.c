/* Links between machines are sealed: AES-GCM by the machine's libcrypto, whose functions are looked up for the first
 * link. A relay that was linked statically cannot look up anything, and has links that its node seals
 * (pool/network/sealed_link.py). Both write the same records:
 *
 *     length    4 bytes, big endian: bytes that follow
 *     sealed    at most RECORD bytes and a tag of 16 that covers the length too; nonce: the record's number
 *
 * A key serves one direction of one link, and no more than SEALED_MOST bytes. */
#include <stdlib.h>
#include <string.h>

#include "relay.h"

#ifndef RELAY_SEALS

bool seal_ready(void) { return false; }
struct seal *seal_new(const uint8_t *keys)
{
    (void)keys;
    return NULL;
}
void seal_free(struct seal *s) { (void)s; }
bool seal_record(struct seal *s, uint8_t *record, const uint8_t *plain, size_t size)
{
    (void)s, (void)record, (void)plain, (void)size;
    return false;
}
bool open_record(struct seal *s, uint8_t *plain, const uint8_t *record, size_t size)
{
    (void)s, (void)plain, (void)record, (void)size;
    return false;
}

#else

#include <dlfcn.h>

#define NONCE 12
/* Names and numbers of libcrypto's interface (OpenSSL 1.1 and 3, evp.h). */
#define CTRL_GET_TAG 0x10
#define CTRL_SET_TAG 0x11
static struct {
    void *(*ctx_new)(void);
    void (*ctx_free)(void *);
    const void *(*aes_128_gcm)(void);
    int (*init)(void *, const void *, void *, const unsigned char *, const unsigned char *, int);
    int (*update)(void *, unsigned char *, int *, const unsigned char *, int);
    int (*final)(void *, unsigned char *, int *);
    int (*ctrl)(void *, int, int, void *);
} evp;

bool seal_ready(void)
{
    static const char *const libraries[] = {"libcrypto.so.3", "libcrypto.so.1.1"};
    static const char *const names[] = {"EVP_CIPHER_CTX_new", "EVP_CIPHER_CTX_free", "EVP_aes_128_gcm",
                                        "EVP_CipherInit_ex",  "EVP_CipherUpdate",    "EVP_CipherFinal_ex",
                                        "EVP_CIPHER_CTX_ctrl"};
    void *found[sizeof names / sizeof *names];
    void *library = NULL;
    _Static_assert(sizeof found == sizeof evp, "each function has its name");
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries && !library; i++)
        library = dlopen(libraries[i], RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!library || !(found[i] = dlsym(library, names[i])))
            return false;
    memcpy(&evp, found, sizeof evp);
    return true;
}

struct direction {
    void *cipher;
    uint64_t number;
};

struct seal {
    struct direction out, in;
    uint64_t sent;
};

struct seal *seal_new(const uint8_t *keys)
{
    struct seal *s = evp.ctx_new || seal_ready() ? calloc(1, sizeof *s) : NULL;
    if (!s)
        return NULL;
    s->out.cipher = evp.ctx_new();
    s->in.cipher = evp.ctx_new();
    if (!s->out.cipher || !s->in.cipher || evp.init(s->out.cipher, evp.aes_128_gcm(), NULL, keys, NULL, 1) != 1 ||
        evp.init(s->in.cipher, evp.aes_128_gcm(), NULL, keys + SEAL_KEY, NULL, 0) != 1) {
        seal_free(s);
        return NULL;
    }
    return s;
}

void seal_free(struct seal *s)
{
    if (!s)
        return;
    if (s->out.cipher)
        evp.ctx_free(s->out.cipher);
    if (s->in.cipher)
        evp.ctx_free(s->in.cipher);
    free(s);
}

/* The next record of a direction begins: its nonce, and the length that the tag covers. */
static bool begin_record(struct direction *d, const uint8_t *length, int seals)
{
    unsigned char nonce[NONCE] = {0};
    int size;
    d->number++;
    for (int i = 0; i < 8; i++)
        nonce[NONCE - 1 - i] = (unsigned char)(d->number >> (8 * i));
    return evp.init(d->cipher, NULL, NULL, NULL, nonce, seals) == 1 &&
           evp.update(d->cipher, NULL, &size, length, SEAL_LENGTH) == 1;
}

/* `record` has room for SEAL_LENGTH + size + SEAL_TAG bytes. False: the key has served for long enough. */
bool seal_record(struct seal *s, uint8_t *record, const uint8_t *plain, size_t size)
{
    uint32_t length = (uint32_t)(size + SEAL_TAG);
    uint8_t *tag = record + SEAL_LENGTH + size;
    int done, rest;
    for (int i = 0; i < SEAL_LENGTH; i++)
        record[i] = (uint8_t)(length >> (8 * (SEAL_LENGTH - 1 - i)));
    if (size > RECORD || (s->sent += size) > SEALED_MOST)
        return false;
    return begin_record(&s->out, record, 1) &&
           evp.update(s->out.cipher, record + SEAL_LENGTH, &done, plain, (int)size) == 1 && done == (int)size &&
           evp.final(s->out.cipher, tag, &rest) == 1 && rest == 0 &&
           evp.ctrl(s->out.cipher, CTRL_GET_TAG, SEAL_TAG, tag) == 1;
}

/* `size`: of what is sealed in it. `plain` holds nothing that may be used where this is false. */
bool open_record(struct seal *s, uint8_t *plain, const uint8_t *record, size_t size)
{
    unsigned char tag[SEAL_TAG];
    int done, rest;
    memcpy(tag, record + SEAL_LENGTH + size, sizeof tag);
    return begin_record(&s->in, record, 0) &&
           evp.update(s->in.cipher, plain, &done, record + SEAL_LENGTH, (int)size) == 1 && done == (int)size &&
           evp.ctrl(s->in.cipher, CTRL_SET_TAG, sizeof tag, tag) == 1 &&
           evp.final(s->in.cipher, plain + done, &rest) == 1 && rest == 0;
}

#endif

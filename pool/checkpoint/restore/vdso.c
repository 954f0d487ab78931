/* A job that was dumped under another kernel: the old vdso (the kernel's page of code) stays at its address, and each
 * of its functions jumps to the one of this kernel, which lies elsewhere. */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "restore/parts.h"

struct text { /* a whole vdso */
    unsigned char *bytes;
    size_t size;
};

static bool within(const struct text *t, uint64_t at, uint64_t size) { return at <= t->size && size <= t->size - at; }

/* Finds the symbol table through the section headers; false if there is none, or it cannot be read. */
static bool symbols(const struct text *t, const Elf64_Sym **table, size_t *count, const char **names,
                    size_t *names_size)
{
    const Elf64_Ehdr *head = (const void *)t->bytes;
    if (t->size < sizeof *head || memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 ||
        head->e_shentsize != sizeof(Elf64_Shdr) || head->e_shoff % 8 ||
        !within(t, head->e_shoff, head->e_shnum * sizeof(Elf64_Shdr)))
        return false;
    const Elf64_Shdr *sections = (const void *)(t->bytes + head->e_shoff);
    for (size_t i = 0; i < head->e_shnum; i++) {
        const Elf64_Shdr *s = &sections[i];
        if (s->sh_type != SHT_DYNSYM || s->sh_link >= head->e_shnum || s->sh_offset % 8 ||
            !within(t, s->sh_offset, s->sh_size))
            continue;
        const Elf64_Shdr *strings = &sections[s->sh_link];
        if (!within(t, strings->sh_offset, strings->sh_size) || !strings->sh_size ||
            t->bytes[strings->sh_offset + strings->sh_size - 1])
            return false;
        *table = (const void *)(t->bytes + s->sh_offset);
        *count = s->sh_size / sizeof **table;
        *names = (const char *)t->bytes + strings->sh_offset;
        *names_size = strings->sh_size;
        return true;
    }
    return false;
}

static bool is_function(const Elf64_Sym *s, size_t names_size)
{
    return ELF64_ST_TYPE(s->st_info) == STT_FUNC && s->st_shndx != SHN_UNDEF && s->st_name < names_size;
}

/* Makes each function of `old` jump to the function of this kernel. Functions for SGX enclaves are skipped: no job with
 * an enclave can be saved. */
static const char *redirect(struct text *old, const struct text *new, uint64_t new_at)
{
    const Elf64_Sym *from, *to;
    const char *from_names, *to_names;
    size_t from_count, to_count, from_size, to_size;
    if (!symbols(old, &from, &from_count, &from_names, &from_size) ||
        !symbols(new, &to, &to_count, &to_names, &to_size))
        return "it cannot be read";
    for (size_t i = 0; i < from_count; i++) {
        const char *name = from_names + from[i].st_name;
        if (!is_function(&from[i], from_size) || strstr(name, "sgx"))
            continue;
        size_t j = 0;
        while (j < to_count && !(is_function(&to[j], to_size) && strcmp(to_names + to[j].st_name, name) == 0))
            j++;
        if (j == to_count || from[i].st_size < JUMP_SIZE || !within(old, from[i].st_value, JUMP_SIZE))
            return "this kernel lacks a function of it";
        jump_to(old->bytes + from[i].st_value, new_at + to[j].st_value);
    }
    return NULL;
}

/* Fills `room` with the image's vdso, with jumps to the functions of `new`, which lies at `new_at`. */
int vdso_redirect(struct restoring *r, const struct area *old, const void *new, size_t new_size, uint64_t new_at,
                  void *room, struct failure *f)
{
    struct text from = {room, old->end - old->start}, to = {(void *)(uintptr_t)new, new_size};
    memset(room, 0, from.size);
    EACH(r->image, extents, extent, e)
        if (e->file == NOBODY && e->owner == old->owner && e->at >= old->start && e->at + e->size <= old->end) {
            const char *was = extent_read(&r->in, e);
            if (!was)
                return set_failure(f, "read",
                                   errno == EBADMSG ? "pages\nit is damaged: a checksum does not fit" : "pages");
            memcpy(from.bytes + (e->at - old->start), was, e->size);
        }
    const char *why = redirect(&from, &to, new_at);
    if (!why)
        return 0;
    char text[200] = "the kernel's own code page (vdso)\nit is another one than where the checkpoint was made, and ";
    strncat(text, why, sizeof text - strlen(text) - 1);
    errno = ENOEXEC;
    return set_failure(f, "restore", text);
}

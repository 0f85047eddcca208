// The bytes of a datatype's element, as a tree: as small as the calls that made the type, however many pieces it has.

#include <stdlib.h>

#include "datatype.h"

struct tree *new_tree(int64_t extent, uint64_t inner_count) {
    struct tree *tree = calloc(1, sizeof *tree);
    if (tree == NULL) return NULL;
    tree->extent = extent;
    tree->inners = calloc(inner_count + 1, sizeof(struct tree *));
    if (tree->inners != NULL) return tree;
    free(tree);
    return NULL;
}

void drop_tree(struct tree *tree) {
    if (tree == NULL) return;
    for (uint64_t at = 0; at < tree->inner_count; at++) drop_tree(tree->inners[at]);
    free(tree->inners);
    free(tree->parts);
    free(tree);
}

// Whether an element is one run of bytes.
static bool is_run(const struct tree *tree) {
    return tree->count == 1 && tree->parts[0].inner == NULL && tree->parts[0].times == 1;
}

bool is_dense(const struct tree *tree) {
    if (tree->count == 0) return true;
    return is_run(tree) && tree->parts[0].start == 0 && tree->extent == (int64_t)tree->bytes;
}

// The same bytes, with fewer blocks and trees.
static struct part simplify(struct part part) {
    const struct tree *inner = part.inner;
    if (inner != NULL && is_run(inner) && (part.length == 1 || inner->extent == (int64_t)inner->bytes)) {
        part.start += inner->parts[0].start;
        part.length *= inner->bytes;
        part.inner = NULL;
    } else if (inner != NULL && is_run(inner) && part.times == 1) {
        part = (struct part){part.start + inner->parts[0].start, inner->extent, part.length, inner->bytes, NULL};
    } else if (inner != NULL && inner->count == 1 && part.times == 1 && part.length == 1) {
        int64_t start = part.start;
        part = inner->parts[0];
        part.start += start;
    }
    if (part.inner == NULL && part.times > 1 && part.stride == (int64_t)part.length) {
        part.length *= part.times;
        part.times = 1;
    }
    return part;
}

bool add_part(struct tree *tree, struct part part) {
    uint64_t each = part.inner != NULL ? part.inner->bytes : 1;
    if (part.times == 0 || part.length == 0 || each == 0) return true;
    tree->bytes += part.times * part.length * each;
    part = simplify(part);
    struct part *last = tree->count > 0 ? &tree->parts[tree->count - 1] : NULL;
    bool are_runs = last != NULL && last->inner == NULL && part.inner == NULL && last->times == 1 && part.times == 1;
    if (are_runs && last->start + (int64_t)last->length == part.start) {
        last->length += part.length;
        return true;
    }
    if (tree->count == tree->capacity) {
        uint64_t capacity = tree->capacity > 0 ? 2 * tree->capacity : 4;
        struct part *parts = realloc(tree->parts, capacity * sizeof *parts);
        if (parts == NULL) return false;
        tree->parts = parts;
        tree->capacity = capacity;
    }
    tree->parts[tree->count++] = part;
    return true;
}

static bool visit_block(const struct part *part, int64_t start, visit_run *visit, void *context) {
    if (part->inner == NULL) return visit(context, start, part->length);
    for (uint64_t at = 0; at < part->length; at++)
        if (!visit_runs(part->inner, start + (int64_t)at * part->inner->extent, visit, context)) return false;
    return true;
}

bool visit_runs(const struct tree *tree, int64_t base, visit_run *visit, void *context) {
    for (uint64_t at = 0; at < tree->count; at++) {
        const struct part *part = &tree->parts[at];
        for (uint64_t time = 0; time < part->times; time++)
            if (!visit_block(part, base + part->start + (int64_t)time * part->stride, visit, context)) return false;
    }
    return true;
}

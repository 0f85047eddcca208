#include "elements.h"

#include <stdbool.h>
#include <string.h>

enum { MAX_TYPES = 40, MAX_OPERATIONS = 16 };
struct type types[MAX_TYPES];
int type_count;
struct operation operations[MAX_OPERATIONS];
int operation_count;

static MPI_Datatype affine;
static MPI_Op compose;

struct map {
    uint32_t factor, summand;
};

// x -> factor * x + summand, one after the other: associative, and not commutative.
static void compose_maps(void *in, void *in_out, int *count, MPI_Datatype *type) {
    (void)type;
    const struct map *first = in;
    struct map *second = in_out;
    for (int at = 0; at < *count; at++) {
        struct map made = {first[at].factor * second[at].factor,
                           first[at].factor * second[at].summand + first[at].summand};
        second[at] = made;
    }
}

static void add_type(const char *name, MPI_Datatype type, enum class class, size_t part) {
    types[type_count++] = (struct type){.name = name, .type = type, .class = class, .part = part};
}

static void add_pair(const char *name, MPI_Datatype type, size_t part, size_t second_at) {
    types[type_count++] = (struct type){name, type, PAIR, part, sizeof(int), second_at};
}

void make_elements(void) {
    MPI_Type_contiguous(2, MPI_UINT32_T, &affine);
    MPI_Type_commit(&affine);
    MPI_Op_create(compose_maps, 0, &compose);
    add_type("signed char", MPI_SIGNED_CHAR, WHOLE, 1);
    add_type("unsigned char", MPI_UNSIGNED_CHAR, WHOLE, 1);
    add_type("short", MPI_SHORT, WHOLE, 2);
    add_type("unsigned short", MPI_UNSIGNED_SHORT, WHOLE, 2);
    add_type("int", MPI_INT, WHOLE, 4);
    add_type("unsigned", MPI_UNSIGNED, WHOLE, 4);
    add_type("long", MPI_LONG, WHOLE, 8);
    add_type("unsigned long", MPI_UNSIGNED_LONG, WHOLE, 8);
    add_type("long long", MPI_LONG_LONG, WHOLE, 8);
    add_type("unsigned long long", MPI_UNSIGNED_LONG_LONG, WHOLE, 8);
    add_type("int8", MPI_INT8_T, WHOLE, 1);
    add_type("int16", MPI_INT16_T, WHOLE, 2);
    add_type("int32", MPI_INT32_T, WHOLE, 4);
    add_type("int64", MPI_INT64_T, WHOLE, 8);
    add_type("uint8", MPI_UINT8_T, WHOLE, 1);
    add_type("uint16", MPI_UINT16_T, WHOLE, 2);
    add_type("uint32", MPI_UINT32_T, WHOLE, 4);
    add_type("uint64", MPI_UINT64_T, WHOLE, 8);
    add_type("aint", MPI_AINT, WHOLE, sizeof(MPI_Aint));
    add_type("float", MPI_FLOAT, REAL, 4);
    add_type("double", MPI_DOUBLE, REAL, 8);
    add_type("long double", MPI_LONG_DOUBLE, REAL, sizeof(long double));
    add_type("float complex", MPI_C_FLOAT_COMPLEX, COMPLEX, 4);
    add_type("double complex", MPI_C_DOUBLE_COMPLEX, COMPLEX, 8);
    add_type("bool", MPI_C_BOOL, BOOLEAN, 1);
    add_type("byte", MPI_BYTE, BYTES, 1);
    add_pair("short and int", MPI_SHORT_INT, sizeof(short), 4);
    add_pair("two ints", MPI_2INT, sizeof(int), 4);
    add_pair("long and int", MPI_LONG_INT, sizeof(long), 8);
    add_pair("float and int", MPI_FLOAT_INT, sizeof(float), 4);
    add_pair("double and int", MPI_DOUBLE_INT, sizeof(double), 8);
    add_type("affine map", affine, AFFINE, 4);
    const struct operation all[] = {
        {"max", MPI_MAX},     {"min", MPI_MIN},   {"sum", MPI_SUM},       {"prod", MPI_PROD},
        {"land", MPI_LAND},   {"band", MPI_BAND}, {"lor", MPI_LOR},       {"bor", MPI_BOR},
        {"lxor", MPI_LXOR},   {"bxor", MPI_BXOR}, {"minloc", MPI_MINLOC}, {"maxloc", MPI_MAXLOC},
        {"compose", compose},
    };
    operation_count = (int)(sizeof all / sizeof *all);
    memcpy(operations, all, sizeof all);
}

void free_elements(void) {
    MPI_Op_free(&compose);
    MPI_Type_free(&affine);
}

int fits(const struct operation *operation, const struct type *type) {
    MPI_Op op = operation->op;
    bool is_logical = op == MPI_LAND || op == MPI_LOR || op == MPI_LXOR;
    bool is_bitwise = op == MPI_BAND || op == MPI_BOR || op == MPI_BXOR;
    bool is_order = op == MPI_MAX || op == MPI_MIN, is_place = op == MPI_MINLOC || op == MPI_MAXLOC;
    switch (type->class) {
    case WHOLE: return !is_place && op != compose && (!is_logical || type->type != MPI_AINT);
    case REAL: return is_order || op == MPI_SUM || op == MPI_PROD;
    case COMPLEX: return op == MPI_SUM || op == MPI_PROD;
    case BOOLEAN: return is_logical;
    case BYTES: return is_bitwise;
    case PAIR: return is_place;
    default: return op == compose;
    }
}

static void put_real(unsigned char *to, size_t bytes, double number) {
    float single = (float)number;
    long double longest = number;
    if (bytes == sizeof single) memcpy(to, &single, bytes);
    if (bytes == sizeof number) memcpy(to, &number, bytes);
    if (bytes == sizeof longest) memcpy(to, &longest, 10);
}

static void put_number(unsigned char *to, const struct type *type, MPI_Op op, uint64_t word) {
    // Of these even a product of many is exact.
    static const double factors[] = {1, -1, 2, 0.5, -2, -0.5, 1, -1};
    bool is_real = type->class == REAL || type->type == MPI_FLOAT_INT || type->type == MPI_DOUBLE_INT;
    if (is_real)
        put_real(to, type->part, op == MPI_PROD ? factors[word % 8] : (double)(int)(word % 2001) - 1000);
    else if (type->class == PAIR)
        // Equal ones are what is to be seen.
        memcpy(to, &(uint64_t){word % 5}, type->part);
    else if (op == MPI_LAND || op == MPI_LOR || op == MPI_LXOR)
        memcpy(to, &(uint64_t){word % 3 == 0 ? 0 : type->class == BOOLEAN ? 1 : word % 127 + 1}, type->part);
    else if (op == MPI_SUM && type->part < 4)
        // Some of Open MPI 4.1.4's sums of these stop at the largest number, and some wrap.
        memcpy(to, &(uint64_t){word % 7}, type->part);
    else if ((op == MPI_MAX || op == MPI_MIN) && type->name[0] == 'u')
        // MPICH 4.0.2 compares some of these as if they had signs.
        memcpy(to, &(uint64_t){word & (((uint64_t)1 << (8 * type->part - 1)) - 1)}, type->part);
    else
        memcpy(to, &word, type->part);
}

// 1 + 2i, or it times i, -1 or -i. No product of these has a part that is zero, whose sign would depend on
// the order of the factors, which is the MPI's affair; and those of sixteen are exact in 24 bits.
static void put_complex(unsigned char *to, size_t bytes, uint64_t random) {
    double sign = random & 1 ? -1 : 1;
    put_real(to, bytes, random & 2 ? -2 * sign : sign);
    put_real(to + bytes, bytes, random & 2 ? sign : 2 * sign);
}

void fill_elements(void *to, size_t count, const struct type *type, const struct operation *operation,
                   uint64_t (*next)(void)) {
    MPI_Aint lower, extent;
    MPI_Type_get_extent(type->type, &lower, &extent);
    memset(to, 0, count * (size_t)extent);
    for (size_t at = 0; at < count; at++) {
        unsigned char *element = (unsigned char *)to + at * (size_t)extent;
        if (type->class == COMPLEX) {
            put_complex(element, type->part, next());
            continue;
        }
        put_number(element, type, operation->op, next());
        if (type->class == AFFINE) put_number(element + type->part, type, operation->op, next());
        if (type->class == PAIR) memcpy(element + type->second_at, &(int){(int)(next() % 50)}, type->second);
    }
}

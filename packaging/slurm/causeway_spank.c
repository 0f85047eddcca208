/*
 * SPANK plugin: `srun --rgpu=N` gives a job N GPUs of a pool of Causeway servers.
 *
 *   plugstack.conf:  required /usr/lib/causeway/slurm/causeway_spank.so pool=NAME
 *   build:           build-plugin, in this folder
 *
 * srun, sbatch and salloc tell slurmctld what the job wants (SPANK_CAUSEWAY_RGPU, SPANK_CAUSEWAY_POOL), whose prolog takes
 * the GPUs (`causeway pool acquire`). On each node slurmstepd then reads the job's lease, a file of the pool's folder, and
 * tells the job's programs of the servers, as `causeway run` would. When the job ends, slurmctld's epilog returns the
 * GPUs. A plugin only reads: nothing that happens to a node changes a lease.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <slurm/spank.h>

SPANK_PLUGIN(causeway, 1);

/* The longest path, list of servers or list of devices. */
#define MAX_TEXT 4096

/* The longest file with keys. */
#define MAX_KEYS (1 << 20)

/* The folder with the jobs' keys, which only root may change. */
#define KEY_FOLDER "/run/causeway-slurm"

/* What plugstack.conf says. */
static const char *pool;
static const char *pools = "/etc/causeway/pools";
static const char *library = "/usr/lib/causeway";
static const char *keys;
static long max_gpus = 64;

/* What --rgpu says; 0 where it is not given. */
static long requested;

static int read_rgpu(int value, const char *text, int remote)
{
    char *end = NULL;
    long count = text ? strtol(text, &end, 10) : 0;

    (void)value;
    (void)remote;
    if (!text || !*text || *end || count < 1 || count > max_gpus) {
        slurm_error("--rgpu=%s: a number of GPUs from 1 to %ld is wanted", text ? text : "", max_gpus);
        return -1;
    }
    requested = count;
    return 0;
}

static struct spank_option options[] = {
    {"rgpu", "N", "Give the job N GPUs of Causeway servers.", 1, 0, read_rgpu},
    SPANK_OPTIONS_TABLE_END,
};

/* The value of an argument `name=value`; NULL where it is another one. */
static const char *value_of(const char *argument, const char *name)
{
    size_t length = strlen(name);

    return strncmp(argument, name, length) == 0 && argument[length] == '=' ? argument + length + 1 : NULL;
}

static int read_arguments(int count, char **arguments)
{
    for (int i = 0; i < count; i++) {
        const char *value;

        if ((value = value_of(arguments[i], "pool")))
            pool = value;
        else if ((value = value_of(arguments[i], "pools")))
            pools = value;
        else if ((value = value_of(arguments[i], "library")))
            library = value;
        else if ((value = value_of(arguments[i], "keys")))
            keys = value;
        else if ((value = value_of(arguments[i], "max")))
            max_gpus = strtol(value, NULL, 10);
        else {
            slurm_error("causeway: plugstack.conf: unknown argument %s; there are pool, pools, library, keys and max",
                        arguments[i]);
            return -1;
        }
    }
    if (!pool || !*pool || strchr(pool, '/') || max_gpus < 1) {
        slurm_error("causeway: plugstack.conf: pool=NAME must name the pool, and max a number of GPUs");
        return -1;
    }
    return ESPANK_SUCCESS;
}

int slurm_spank_init(spank_t spank, int count, char **arguments)
{
    if (read_arguments(count, arguments))
        return -1;
    switch (spank_context()) {
    case S_CTX_LOCAL:
    case S_CTX_ALLOCATOR:
    case S_CTX_REMOTE:
        return spank_option_register(spank, options);
    default:
        return ESPANK_SUCCESS;
    }
}

/* Tells prolog and epilog, and job_submit.lua, what the job wants. */
static int tell_controller(spank_t spank)
{
    char text[24];

    /* Prolog and job_submit.lua see them as SPANK_CAUSEWAY_... */
    snprintf(text, sizeof text, "%ld", requested);
    if (spank_job_control_setenv(spank, "CAUSEWAY_RGPU", text, 1) != ESPANK_SUCCESS ||
        spank_job_control_setenv(spank, "CAUSEWAY_POOL", pool, 1) != ESPANK_SUCCESS) {
        slurm_error("causeway: slurmctld cannot be told of --rgpu");
        return -1;
    }
    return ESPANK_SUCCESS;
}

/* What a job's programs are told of its lease. */
struct lease {
    char on[MAX_TEXT];
    char devices[MAX_TEXT];
};

/* Copies what follows `key=` in a line. False where it does not fit. */
static bool take_value(const char *line, const char *key, char *value)
{
    const char *found = value_of(line, key);
    size_t length = found ? strcspn(found, "\n") : 0;

    if (!found)
        return true;
    if (length >= MAX_TEXT)
        return false;
    memcpy(value, found, length);
    value[length] = '\0';
    return true;
}

/* Reads the lease of a job. False, with errno, where there is none. */
static bool read_lease(uint32_t job, struct lease *lease)
{
    char path[MAX_TEXT];
    char line[MAX_TEXT + 16];
    bool fits = true;
    int length = snprintf(path, sizeof path, "%s/%s/leases/job-slurm-%u", pools, pool, job);
    FILE *file;

    memset(lease, 0, sizeof *lease);
    if (length < 0 || (size_t)length >= sizeof path) {
        errno = ENAMETOOLONG;
        return false;
    }
    file = fopen(path, "re");
    if (!file)
        return false;
    while (fits && fgets(line, sizeof line, file))
        fits = take_value(line, "on", lease->on) && take_value(line, "devices", lease->devices);
    fclose(file);
    if (fits && *lease->on && *lease->devices)
        return true;
    errno = EINVAL;
    return false;
}

static void key_path(char *path, size_t size, uint32_t job)
{
    snprintf(path, size, KEY_FOLDER "/keys-%u", job);
}

/* Copies the keys of the pool's servers into a file. */
static bool copy_keys(int from, int to)
{
    char *content = malloc(MAX_KEYS);
    ssize_t length = content ? read(from, content, MAX_KEYS) : -1;
    bool copied = length > 0 && length < MAX_KEYS && write(to, content, (size_t)length) == length;

    if (content) {
        explicit_bzero(content, MAX_KEYS);
        free(content);
    }
    return copied;
}

/* Puts the keys into a file that only the job's user can read. Runs as root, in a folder that only root can change. */
static bool give_keys(uint32_t job, uid_t user, gid_t group)
{
    char path[64];
    char unfinished[80];
    int from;
    int to;
    bool given;

    key_path(path, sizeof path, job);
    /* Several steps of a job may begin at the same time. */
    snprintf(unfinished, sizeof unfinished, "%s.%ld", path, (long)getpid());
    if (mkdir(KEY_FOLDER, 0711) && errno != EEXIST)
        return false;
    from = open(keys, O_RDONLY | O_CLOEXEC);
    if (from < 0)
        return false;
    to = open(unfinished, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    given = to >= 0 && copy_keys(from, to) && fchown(to, user, group) == 0 && rename(unfinished, path) == 0;
    if (to >= 0)
        close(to);
    close(from);
    if (!given)
        unlink(unfinished);
    return given;
}

static int set(spank_t spank, const char *name, const char *value)
{
    if (spank_setenv(spank, name, value, 1) == ESPANK_SUCCESS)
        return 0;
    slurm_error("causeway: the variable %s cannot be set", name);
    return -1;
}

/* Puts the client library in front of what the job's programs find. */
static int set_library(spank_t spank)
{
    char before[MAX_TEXT * 4];
    char path[MAX_TEXT * 5];

    if (spank_getenv(spank, "LD_LIBRARY_PATH", before, sizeof before) == ESPANK_SUCCESS && *before)
        snprintf(path, sizeof path, "%s:%s", library, before);
    else
        snprintf(path, sizeof path, "%s", library);
    /* Triton asks the system's cache of libraries before it looks at LD_LIBRARY_PATH. */
    return set(spank, "LD_LIBRARY_PATH", path) || set(spank, "TRITON_LIBCUDA_PATH", library);
}

/* Tells the programs of a job that begins here of its GPUs. */
static int tell_programs(spank_t spank)
{
    struct lease lease;
    uint32_t job;
    uid_t user;
    gid_t group;

    if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_UID, &user) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_GID, &group) != ESPANK_SUCCESS) {
        slurm_error("causeway: Slurm does not say which job this is");
        return -1;
    }
    if (!read_lease(job, &lease)) {
        if (!requested)
            return ESPANK_SUCCESS;
        slurm_error("causeway: job %u wants GPUs and has no lease in %s/%s/leases: %s; is PrologSlurmctld set, and is this "
                    "the same folder here and where slurmctld runs?",
                    job, pools, pool, strerror(errno));
        return -1;
    }
    if (set(spank, "CAUSEWAY_ON", lease.on) || set(spank, "CUDA_VISIBLE_DEVICES", lease.devices) || set_library(spank))
        return -1;
    if (keys) {
        char path[64];

        if (!give_keys(job, user, group)) {
            slurm_error("causeway: the keys of %s cannot be given to job %u in %s: %s", keys, job, KEY_FOLDER,
                        strerror(errno));
            return -1;
        }
        key_path(path, sizeof path, job);
        return set(spank, "CAUSEWAY_KEY_FILE", path);
    }
    return ESPANK_SUCCESS;
}

int slurm_spank_init_post_opt(spank_t spank, int count, char **arguments)
{
    (void)count;
    (void)arguments;
    if (spank_context() == S_CTX_REMOTE)
        return tell_programs(spank);
    return requested ? tell_controller(spank) : ESPANK_SUCCESS;
}

/* On a node, as root, when all of the job's programs there have ended. */
int slurm_spank_job_epilog(spank_t spank, int count, char **arguments)
{
    char path[64];
    uint32_t job;

    (void)count;
    (void)arguments;
    if (spank_get_item(spank, S_JOB_ID, &job) == ESPANK_SUCCESS) {
        key_path(path, sizeof path, job);
        unlink(path);
    }
    return ESPANK_SUCCESS;
}

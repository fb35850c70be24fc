/* Several files change together or not at all, on an image file: the configuration of a device and
 * the version that says which one it is. An update that goes wrong in the middle is rolled back;
 * one that succeeds is one transaction.
 *
 *     cc examples/c/atomic-update.c $(pkg-config --cflags --libs steadfast) -o atomic-update
 *     ./atomic-update disk.img
 */
#include <steadfast.h>

#include <stdio.h>
#include <string.h>

static int failed(const char *what) {
    fprintf(stderr, "atomic-update: %s: %s\n", what, sf_last_error());
    return -1;
}

/* Writes one file of the new configuration. */
static int put(sf_volume *volume, const char *path, const char *text) {
    return sf_write_file(volume, path, text, strlen(text)) < 0 ? failed(path) : 0;
}

/* All of an update: new files, an old one removed, a link that is switched. `broken`: fails before
 * its end. */
static int update(sf_volume *volume, const char *version, int broken) {
    char path[64];
    snprintf(path, sizeof path, "/releases/%s", version);
    if (sf_mkdir_all(volume, path) < 0) {
        return failed(path);
    }
    snprintf(path, sizeof path, "/releases/%s/network.conf", version);
    if (put(volume, path, "address = 192.0.2.7\n") < 0 || put(volume, "/version", version) < 0) {
        return -1;
    }
    if (broken) {
        fprintf(stderr, "atomic-update: the download of %s ended too early\n", version);
        return -1;
    }
    snprintf(path, sizeof path, "releases/%s", version);
    if (sf_symlink(volume, path, "/current.new") < 0 ||
        sf_rename(volume, "/current.new", "/current", 0) < 0) {
        return failed("/current");
    }
    const int set = sf_xattr_set(volume, "/version", "user.origin", "factory", 7, 0);
    return set < 0 ? failed("/version") : 0;
}

static int install(sf_volume *volume, const char *version, int broken) {
    /* Until the commit nothing becomes durable: after a power cut the volume is as it is now. */
    sf_transaction *transaction;
    if (sf_begin(volume, &transaction) < 0) {
        return failed("begin");
    }
    if (update(volume, version, broken) == 0) {
        /* From here on all of it is there, whenever the power fails. */
        return sf_commit(transaction) < 0 ? failed("commit") : 0;
    }
    if (sf_abort(transaction) < 0) {
        return failed("abort");
    }
    printf("%s: rolled back\n", version);
    return 0;
}

static int show(sf_volume *volume) {
    char version[32] = {0}, target[64] = {0};
    if (sf_read_file(volume, "/version", version, sizeof version - 1) < 0 ||
        sf_readlink(volume, "/current", target, sizeof target - 1) < 0) {
        return failed("show");
    }
    printf("version %s, current -> %s, releases:", version, target);
    sf_dir *directory;
    if (sf_dir_open(volume, "/releases", &directory) < 0) {
        return failed("/releases");
    }
    sf_entry entry;
    int more;
    while ((more = sf_dir_read(directory, &entry)) > 0) {
        printf(" %s", entry.name);
    }
    sf_dir_close(directory);
    printf("\n");
    return more < 0 ? failed("/releases") : 0;
}

int main(int count, char **arguments) {
    if (count != 2) {
        fprintf(stderr, "usage: atomic-update IMAGE (is made, must not exist)\n");
        return 2;
    }
    sf_format_options format;
    sf_format_options_init(&format, sizeof format);
    format.size = 8 << 20;
    sf_volume *volume;
    if (sf_format_image(arguments[1], &format) < 0 ||
        sf_open_image(arguments[1], NULL, &volume) < 0) {
        return failed("open") != 0;
    }
    int result = install(volume, "1.0", 0);
    if (result == 0) {
        result = show(volume);
    }
    if (result == 0) {
        result = install(volume, "1.1", 1);
    }
    if (result == 0) {
        result = show(volume);
    }
    if (result == 0) {
        result = install(volume, "1.2", 0);
    }
    if (result == 0) {
        result = show(volume);
    }
    if (sf_close(volume) < 0) {
        result = failed("close");
    }
    return result == 0 ? 0 : 1;
}

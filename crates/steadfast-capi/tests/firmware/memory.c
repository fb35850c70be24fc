/* Arenas of every size, most of them too small. A volume is made, filled and changed until memory
 * runs out, or to the end. Then the power fails. A mount in the same arena succeeds or says that
 * the arena is too small; a mount in a large one finds everything that was acknowledged. No call
 * answers anything else, and nothing panics. */
#include "common.h"

#define FILES 50u
#define FILE_SIZE 1000u
#define PAGES 320u

static unsigned char bytes[CHIP_MAX], copy[CHIP_MAX];
static struct chip chip = {CHIP_MAX, CHIP_MAX, 0, 0, 0, 0, NULL, bytes};
static sf_device device;
static sf_open_options options;

/* What was acknowledged: whether the files are durable, and the value of each page of the large
 * file. `doubtful` is a page whose write failed. */
static int files_durable;
static unsigned char pages[PAGES];
static unsigned doubtful;

/* The first error. */
static int failed;

static int note(int64_t result) {
    if (result < 0 && failed == 0) {
        failed = (int)result;
    }
    return failed == 0;
}

static const char *name_of(unsigned number) {
    static char name[] = "/dir0/file-00";
    name[4] = (char)('0' + number % 4u);
    name[11] = (char)('0' + number / 10u);
    name[12] = (char)('0' + number % 10u);
    return name;
}

static void change_pages(sf_volume *volume) {
    static unsigned char page[UNIT];
    sf_file *file = NULL;
    if (!note(sf_file_open(volume, "/large", SF_WRITE | SF_CREATE | SF_SYNC, 0644, &file))) {
        return;
    }
    for (unsigned number = 0; number < PAGES && failed == 0; number++) {
        unsigned place = number * 37u % PAGES;
        memset(page, (int)number | 1, sizeof page);
        doubtful = place;
        if (note(sf_pwrite(file, page, sizeof page, (int64_t)(place * UNIT)))) {
            pages[place] = page[0];
            doubtful = PAGES;
        }
        (void)note(sf_background(volume));
    }
    (void)note(sf_file_close(file));
}

static void work(sf_volume *volume) {
    static unsigned char data[FILE_SIZE];
    char path[] = "/dir0";
    for (unsigned number = 0; number < 4u; number++) {
        path[4] = (char)('0' + number);
        (void)note(sf_mkdir(volume, path, 0755));
    }
    for (unsigned number = 0; number < FILES && failed == 0; number++) {
        memset(data, (int)number, sizeof data);
        (void)note(sf_write_file(volume, name_of(number), data, sizeof data));
    }
    if (failed != 0 || !note(sf_transact(volume))) {
        return;
    }
    files_durable = 1;
    change_pages(volume);
    for (unsigned number = 0; number < 20u && failed == 0; number++) {
        (void)note(sf_unlink(volume, name_of(number)));
    }
    (void)note(sf_transact(volume));
}

static void verify(sf_volume *volume) {
    static unsigned char data[FILE_SIZE], page[UNIT];
    sf_file *file = NULL;
    for (unsigned number = 20u; number < FILES && files_durable; number++) {
        IS(sf_read_file(volume, name_of(number), data, sizeof data), FILE_SIZE);
        IS(data[0], number);
        IS(data[FILE_SIZE - 1u], number);
    }
    if (sf_file_open(volume, "/large", SF_READ, 0, &file) != 0) {
        file = NULL;
    }
    for (unsigned place = 0; place < PAGES; place++) {
        if (pages[place] != 0u && place != doubtful) {
            IS(sf_pread(file, page, sizeof page, (int64_t)(place * UNIT)), UNIT);
            IS(page[0], pages[place]);
            IS(page[UNIT - 1u], pages[place]);
        }
    }
    IS(sf_file_close(file), 0);
}

static void format(void) {
    sf_format_options wishes;
    IS(sf_format_options_init(&wishes, sizeof wishes), 0);
    wishes.block_size = UNIT;
    wishes.log_size = 16384;
    wishes.mask = SF_MASK_DEFAULT & ~(uint32_t)SF_ON_UNMOUNT;
    (void)note(sf_format(&device, &wishes));
}

/* One life in an arena. Returns how far it came: 0 format, 1 mount, 2 work, 3 mount after the cut,
 * 4 all. */
static int life(size_t arena) {
    sf_volume *volume = NULL;
    sf_memory_use memory;
    int stage = 0;
    memset(bytes, 0xff, sizeof bytes);
    memset(pages, 0, sizeof pages);
    files_durable = 0;
    doubtful = PAGES;
    failed = 0;
    IS(start_with(arena), 0);
    format();
    if (failed == 0) {
        stage = 1;
        (void)note(sf_open(&device, &options, &volume));
    }
    if (failed == 0) {
        stage = 2;
        work(volume);
        /* The power fails now; what closing still writes is lost. */
        memcpy(copy, bytes, sizeof copy);
        (void)sf_close(volume);
        memcpy(bytes, copy, sizeof copy);
    } else {
        IS(failed, -SF_ENOBUFS);
        IS(sf_memory(&memory), 0);
        IS(memory.wanted > 0u && memory.peak <= arena, 1);
    }
    IS(sf_stop(), 0);
    if (stage < 2) {
        return stage;
    }
    if (failed != 0) {
        IS(failed, -SF_ENOMEM);
    }
    IS(start_with(arena), 0);
    int again = sf_open(&device, &options, &volume);
    if (again == 0) {
        stage = failed == 0 ? 4 : stage;
        (void)sf_close(volume);
    } else {
        stage = failed == 0 ? 3 : stage;
        IS(again, -SF_ENOBUFS);
    }
    IS(sf_stop(), 0);
    IS(start_with(ARENA_MAX), 0);
    IS(sf_open(&device, &options, &volume), 0);
    verify(volume);
    IS(sf_close(volume), 0);
    IS(sf_stop(), 0);
    return stage;
}

int main(void) {
    int reached[5] = {0, 0, 0, 0, 0};
    device = device_on(&chip);
    IS(start_with(4096), 0);
    IS(sf_open_options_init(&options, sizeof options), 0);
    IS(sf_stop(), 0);
    options.flags = SF_OPEN_NO_ATIME;
    options.cache_size = 0;
    for (size_t arena = 1024u; arena < 96u * 1024u; arena += 1900u) {
        reached[life(arena)]++;
    }
    board_print("arenas by how far they came:");
    for (unsigned stage = 0; stage < 5u; stage++) {
        board_print(" ");
        board_number(reached[stage]);
    }
    board_print("\n");
    /* A test of small arenas that never meets one proves nothing. */
    IS(reached[0] > 0 && reached[1] > 0 && reached[2] > 0 && reached[4] > 0, 1);
    /* An arena that does the work can mount after a power cut, too. */
    IS(reached[3], 0);
    board_print("ok\n");
    return 0;
}

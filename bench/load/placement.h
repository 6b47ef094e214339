/*
 * Which process holds the other end of a local connection, by what the kernel tells under /proc.
 * The shards of a server share a port, and the kernel deals connections out to them.
 */
#ifndef LOAD_PLACEMENT_H
#define LOAD_PLACEMENT_H

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Find the inode of the server's end of the connection from `client_port`; 0 when there is none. */
static unsigned long find_inode(unsigned server_port, unsigned client_port)
{
    char line[512];
    unsigned long found = 0;
    FILE *table = fopen("/proc/net/tcp", "r");
    if (table == NULL)
        return 0;
    while (found == 0 && fgets(line, sizeof line, table) != NULL) {
        unsigned local, remote;
        unsigned long inode;
        int fields = sscanf(line, "%*d: %*x:%x %*x:%x %*x %*x:%*x %*x:%*x %*x %*u %*u %lu", &local,
                            &remote, &inode);
        if (fields == 3 && local == server_port && remote == client_port)
            found = inode;
    }
    fclose(table);
    return found;
}

/* Tell whether a process has a socket open. */
static bool holds_socket(int process, unsigned long inode)
{
    char path[64], wanted[64], target[64];
    snprintf(path, sizeof path, "/proc/%d/fd", process);
    snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    DIR *folder = opendir(path);
    if (folder == NULL)
        return false;
    bool found = false;
    struct dirent *entry;
    while (!found && (entry = readdir(folder)) != NULL) {
        ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1);
        if (length > 0) {
            target[length] = 0;
            found = strcmp(target, wanted) == 0;
        }
    }
    closedir(folder);
    return found;
}

#endif

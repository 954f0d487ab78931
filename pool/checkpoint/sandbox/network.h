/* A network of the job's own: one device with an address for it, and a wire to whatever carries its packets. */
#ifndef POOL_NETWORK_H
#define POOL_NETWORK_H

#include <stdint.h>
#include <sys/types.h>

#include "common/common.h"

/* bytes of a packet of TCP that the device of a job, and its wire, pass whole (large.c of pool/network/relay) */
#define NETWORK_LARGEST (256 << 10)

/* network.c */
int network_try(void); /* in a network namespace of its own: 0, or -1 and errno */
int network_up(const struct job *job, struct failure *f); /* in the job's namespace: devices, addresses, routes */
int network_names(const struct job *job, struct failure *f); /* in the job's file tree: /etc/hosts */
void network_settings(void); /* with the job's /proc */
void network_show_devices(void); /* in /sys, where the job has a file tree of its own */
int network_wire(void); /* a packet socket at the far end of the job's device; -1 and errno */
int network_connect(uint16_t port, bool by_six); /* a connection to a port of the job, being made; -1 and errno */

/* network_lists.c: the lists in /proc/PID/net of this network are this user's alone from now on; 0, or -1 and errno */
int network_hide(uid_t uid, gid_t gid);

/* netlink.c: each is 0, or -1 and errno */
int netlink_open(void);
int netlink_pair(int link, const char *name, const char *other, const uint8_t address[6], uint32_t mtu);
int netlink_device_up(int link, const char *name, unsigned flags);
/* no IPv6 address of its own making: those would differ from part to part, and send packets about themselves */
int netlink_no_link_address(int link, const char *name);
int netlink_address(int link, const char *name, int family, const void *address, unsigned prefix);
int netlink_route(int link, const char *name, int family, const void *to, unsigned prefix); /* over the device itself */
int netlink_all_local(int link, int family); /* every address that no other route has is this machine's own */

#endif

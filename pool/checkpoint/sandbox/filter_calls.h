/* The system calls that a filtered job has no use for. Each table of numbers has one file that includes this one, after
 * the header that defines the numbers; calls that a table lacks are left out. Calls that ordinary programs use are
 * allowed: threads, debuggers and tracers of the job's own processes, compilers that write code as they run, memory
 * policies, extended attributes. A call that fails anyway without capabilities is listed too if it was a way into the
 * kernel before. */
#include "sandbox/filter.h"

#define NOT_HERE (-1)
#ifndef __NR_create_module
#define __NR_create_module NOT_HERE
#endif
#ifndef __NR_get_kernel_syms
#define __NR_get_kernel_syms NOT_HERE
#endif
#ifndef __NR_query_module
#define __NR_query_module NOT_HERE
#endif
#ifndef __NR_kexec_file_load
#define __NR_kexec_file_load NOT_HERE
#endif
#ifndef __NR_iopl
#define __NR_iopl NOT_HERE
#endif
#ifndef __NR_ioperm
#define __NR_ioperm NOT_HERE
#endif
#ifndef __NR_uselib
#define __NR_uselib NOT_HERE
#endif
#ifndef __NR__sysctl
#define __NR__sysctl NOT_HERE
#endif
#ifndef __NR_sysfs
#define __NR_sysfs NOT_HERE
#endif
#ifndef __NR_stime
#define __NR_stime NOT_HERE
#endif
#ifndef __NR_clock_settime64
#define __NR_clock_settime64 NOT_HERE
#endif
#ifndef __NR_umount
#define __NR_umount NOT_HERE
#endif
#ifndef __NR_vm86
#define __NR_vm86 NOT_HERE
#endif
#ifndef __NR_vm86old
#define __NR_vm86old NOT_HERE
#endif
#ifndef __NR_socket
#define __NR_socket NOT_HERE
#endif
#ifndef __NR_quotactl_fd
#define __NR_quotactl_fd 443
#endif
#ifndef __NR_mount_setattr
#define __NR_mount_setattr 442
#endif
#define __NR_open_tree_attr_anywhere 467

static const struct call calls[] = {
    /* the machine: its kernel, clock, swap and name */
    {__NR_init_module, REFUSED},
    {__NR_finit_module, REFUSED},
    {__NR_delete_module, REFUSED},
    {__NR_create_module, REFUSED},
    {__NR_get_kernel_syms, REFUSED},
    {__NR_query_module, REFUSED},
    {__NR_kexec_load, REFUSED},
    {__NR_kexec_file_load, REFUSED},
    {__NR_reboot, REFUSED},
    {__NR_swapon, REFUSED},
    {__NR_swapoff, REFUSED},
    {__NR_acct, REFUSED},
    {__NR_syslog, REFUSED},
    {__NR_settimeofday, REFUSED},
    {__NR_stime, REFUSED},
    {__NR_clock_settime, REFUSED},
    {__NR_clock_settime64, REFUSED},
    {__NR_quotactl, REFUSED},
    {__NR_quotactl_fd, REFUSED},
    {__NR_sethostname, NESTED},
    {__NR_setdomainname, NESTED},
    {__NR_vhangup, REFUSED},
    {__NR_iopl, REFUSED},
    {__NR_ioperm, REFUSED},
    {__NR_vm86, REFUSED},
    {__NR_vm86old, REFUSED},
    {__NR_uselib, REFUSED},
    {__NR__sysctl, REFUSED},
    {__NR_sysfs, REFUSED},
    {__NR_nfsservctl, REFUSED},
    {__NR_lookup_dcookie, REFUSED},
    /* other users: kernel keys belong to a user, not to a job; file handles bypass directory permissions */
    {__NR_keyctl, REFUSED},
    {__NR_add_key, REFUSED},
    {__NR_request_key, REFUSED},
    {__NR_open_by_handle_at, REFUSED},
    {__NR_fanotify_init, REFUSED},
    /* programs in the kernel, and tracing of the kernel */
    {__NR_bpf, REFUSED},
    {__NR_perf_event_open, REFUSED},
    {__NR_userfaultfd, FAULTS_OF_USERS},
    {__NR_io_uring_setup, ABSENT},
    {__NR_io_uring_enter, ABSENT},
    {__NR_io_uring_register, ABSENT},
    /* mounts, and namespaces of the job's own */
    {__NR_mount, NESTED},
    {__NR_umount, NESTED},
    {__NR_umount2, NESTED},
    {__NR_pivot_root, NESTED},
    {__NR_move_mount, NESTED},
    {__NR_open_tree, NESTED},
    {__NR_open_tree_attr_anywhere, NESTED},
    {__NR_fsopen, NESTED},
    {__NR_fsconfig, NESTED},
    {__NR_fsmount, NESTED},
    {__NR_fspick, NESTED},
    {__NR_mount_setattr, NESTED},
    {__NR_setns, NESTED},
    {__NR_clone, NO_USER_NAMESPACE},
    {__NR_unshare, NO_USER_NAMESPACE},
    {__NR_clone3,
     ABSENT_UNLESS_NESTED}, /* its flags lie in memory, which a filter cannot read; libraries fall back on clone */
    /* other processes, if no pid namespace hides them */
    {__NR_ptrace, OTHERS},
    {__NR_process_vm_readv, OTHERS},
    {__NR_process_vm_writev, OTHERS},
    {__NR_pidfd_getfd, OTHERS},
    {__NR_kcmp, OTHERS},
    {__NR_socket, NO_VSOCK}, /* to the host of this virtual machine */
};

/* A program in C99 and in C++11 at the same time, which an installed prefix must be able to build. */
#include <ifunc_rt.h>

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    ifunc_target_options *options = ifunc_target_options_create();
    ifunc_target *target = NULL;
    ifunc_source *source = NULL;
    ifunc_status status;
    size_t handled = 1;

    if (argc != 2 || options == NULL)
        return 2;
    if (ifunc_target_options_accept_code(options) != IFUNC_STATUS_OK)
        return 3;
    if (ifunc_target_listen(argv[1], options, &target) != IFUNC_STATUS_OK) {
        fprintf(stderr, "%s\n", ifunc_rt_last_error());
        return 4;
    }
    if (strcmp(ifunc_target_address(target), argv[1]) != 0)
        return 5;
    if (ifunc_target_poll(target, NULL, &handled) != IFUNC_STATUS_OK || handled != 0)
        return 6;
    if (ifunc_target_destroy(target) != IFUNC_STATUS_OK)
        return 7;
    ifunc_target_options_destroy(options);
    status = ifunc_source_connect("nowhere", NULL, &source);
    if (status != IFUNC_STATUS_INVALID_ADDRESS || source != NULL || strlen(ifunc_rt_last_error()) == 0)
        return 8;
    printf("version %s\n", ifunc_rt_version());
    return 0;
}

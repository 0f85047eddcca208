/* libmlx5 of the soft card, whose queues the library with the name of libibverbs makes. */
#include "abi.h"

int softcard_init_obj(struct mlx5dv_obj *object, uint64_t kinds);
struct ibv_qp *softcard_create_qp(struct ibv_context *context, struct ibv_qp_init_attr_ex *attributes,
                                  struct mlx5dv_qp_init_attr *of_provider);

bool mlx5dv_is_supported(struct ibv_device *device) { return device != NULL; }

int mlx5dv_init_obj(struct mlx5dv_obj *object, uint64_t kinds) { return softcard_init_obj(object, kinds); }

struct ibv_qp *mlx5dv_create_qp(struct ibv_context *context, struct ibv_qp_init_attr_ex *attributes,
                                struct mlx5dv_qp_init_attr *of_provider) {
    return softcard_create_qp(context, attributes, of_provider);
}

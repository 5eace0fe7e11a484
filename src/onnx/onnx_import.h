/* SPDX-License-Identifier: MIT
 * An import under way: values that the names of a graph stand for, and the nodes' translation into layers. A node
 * that cannot be taken is refused with a message and the import goes on, so that all of them are named; nodes that
 * depend on it are left out without one. */
#ifndef CVY_ONNX_ONNX_IMPORT_H
#define CVY_ONNX_ONNX_IMPORT_H

#include <stdbool.h>

#include "convoy/net.h"
#include "src/onnx/onnx_file.h"
#include "src/ops/activation.h"

typedef struct Onnx__NodeProto cvy_onnx_node;
typedef struct Onnx__GraphProto cvy_onnx_graph;

typedef enum cvy_onnx_kind {
  CVY_ONNX_UNMADE,   /* the node that makes it comes later, or never */
  CVY_ONNX_BAD,      /* its node was refused, or depends on one that was */
  CVY_ONNX_NODE,     /* a tensor of samples */
  CVY_ONNX_PADDED,   /* one with zeros around the pictures, which the node that reads it puts there */
  CVY_ONNX_FORMULA,  /* a number of each number of a tensor of samples; it becomes a layer when a node needs it */
  CVY_ONNX_CHANNELS, /* one with each channel times a number, plus a number; likewise */
  CVY_ONNX_TENSOR,   /* numbers of the file */
  CVY_ONNX_WHOLE     /* whole numbers that were computed: sizes, mostly */
} cvy_onnx_kind;

enum {
  CVY_ONNX_PLACES = 20,
  CVY_ONNX_WHOLE_MOST = 8,
  CVY_ONNX_BATCH = -2
}; /* BATCH: a whole number that stands for the batch's size */

/* The use of a tensor of the file. */
typedef enum cvy_onnx_use {
  CVY_ONNX_USE_OTHER,
  CVY_ONNX_USE_FILTERS,
  CVY_ONNX_USE_GAMMA, /* of a batch normalisation */
  CVY_ONNX_USE_BETA
} cvy_onnx_use;

/* How a number for each channel that is added or multiplied by is taken. */
typedef enum cvy_onnx_role {
  CVY_ONNX_CONSTANT, /* not trained */
  CVY_ONNX_FREE,     /* a parameter by itself */
  CVY_ONNX_FOLDED    /* made of parameters by an exporter: it becomes part of the layer in front */
} cvy_onnx_role;

/* The kind of a tensor in the exporter's own words. */
typedef enum cvy_onnx_said { CVY_ONNX_SAID_NOTHING, CVY_ONNX_SAID_PARAMETER, CVY_ONNX_SAID_BUFFER } cvy_onnx_said;

/* The value that a name stands for. */
typedef struct cvy_onnx_value {
  const char *name;  /* the file's */
  const char *label; /* of a TENSOR: the name of its layer */
  const char *title; /* of a TENSOR: the name of what a Reshape or the like has shaped */
  cvy_onnx_kind kind;
  bool needed;   /* the output depends on it */
  int n_readers; /* nodes that need it */
  int reader;    /* the last of them */
  cvy_node node; /* NODE, PADDED; CHANNELS: in front of them */
  bool flat;     /* of samples: (samples, values) instead of (samples, channels, rows, columns) */
  bool last;     /* of samples: channels come behind rows and columns; with flat, so lie the values */
  bool sole;     /* NODE, CHANNELS: one node reads it, and nothing else its layer */
  const cvy_onnx_tensor *tensor;
  struct cvy_onnx_value *root;        /* TENSOR: of another shape or type: the one of the file; NULL: it is that one */
  bool transposed;                    /* TENSOR: a matrix, rows and columns swapped */
  bool used;                          /* TENSOR: it is a layer's parameter already */
  bool by_node;                       /* TENSOR: a Constant node made it */
  cvy_onnx_said said;                 /* TENSOR */
  bool temporary;                     /* TENSOR: a buffer that no state_dict holds */
  bool computed;                      /* TENSOR: made of parameters by the exporter, under any name */
  int n_view;                         /* TENSOR: dimensions that nodes gave it, before it is swapped; 0: its own */
  int64_t view[CVY_ONNX_WHOLE_MOST];  /* these */
  int pad[4];                         /* PADDED: rows above, columns left, rows below, columns right; else 0 */
  struct cvy_onnx_formula *formula;   /* FORMULA */
  struct cvy_onnx_channels *channels; /* CHANNELS */
  int n_whole, whole_columns;         /* WHOLE: of a matrix of 2 dimensions; 0: a list */
  int64_t whole[CVY_ONNX_WHOLE_MOST];
} cvy_onnx_value;

/* A function of the numbers of one layer, each by itself, known by its values at a few places. */
typedef struct cvy_onnx_formula {
  struct cvy_onnx_formula *next; /* made before */
  cvy_node of, made;             /* its layer; -1: none yet */
  bool flat, refused;
  enum { CVY_ONNX_NO_LAYER, CVY_ONNX_ACTIVATION, CVY_ONNX_SUM, CVY_ONNX_PRODUCT } step; /* the last one, as a layer */
  struct cvy_onnx_formula *in[2]; /* inputs of the last step; NULL: the layer `of` */
  int n_in, depth;
  bool number_first; /* n_in 1 of a step of two: it is the first one */
  double number;
  cvy_activation_params activation; /* ACTIVATION; without c and pitch */
  const cvy_onnx_node *node;
  double at[CVY_ONNX_PLACES]; /* its values where the layer's number is one of some */
  /* Of a search for a root: how far that has come, and the values from that root. */
  int visit;
  bool from_root;
  double again[CVY_ONNX_PLACES];
} cvy_onnx_formula;

/* x[c] * scale[c] + shift[c] behind a layer (onnx_channels.c). FREE: at most a factor and then a shift, whose values
 * are those of tensors; else the numbers hold all steps. */
typedef struct cvy_onnx_channels {
  struct cvy_onnx_channels *next; /* made before */
  cvy_node of, made;              /* the layer in front; the one that computes it, -1: none yet */
  bool alone;                     /* nothing else reads the layer in front */
  cvy_onnx_role role;
  bool scales, shifts;
  const struct cvy_onnx_value *factor, *shift; /* FREE; NULL: none */
  char name[64];                               /* of a layer of its own */
  int n;                                       /* channels */
  double numbers[];                            /* scale, shift */
} cvy_onnx_channels;

/* A parameter's value, for when the network is finished. */
typedef struct cvy_onnx_weight {
  char name[96], place[96];    /* in weights files; "LAYER.weight" */
  const cvy_onnx_value *value; /* NULL: weights of 1, a bias of 0, before `by` */
  int n;                       /* numbers, without a value */
  bool transposed;             /* rows and columns are to be swapped */
  bool turned;                 /* a matrix that lies in weights files as (in, out) */
  bool not_negative;           /* a variance */
  bool is_bias;
  const cvy_onnx_channels *by; /* for each output; NULL: none */
  int spread;                  /* one number, which stands so often; 0: as they are */
  int pixels[3];               /* a matrix takes rows x columns x channels; zeros: channels x rows x columns */
} cvy_onnx_weight;

/* A layer's name that is not the weight's own. */
typedef struct cvy_onnx_label {
  cvy_onnx_value *value;
  char *text;
} cvy_onnx_label;

typedef struct cvy_onnx_import_state {
  const cvy_onnx_file *file;
  const cvy_onnx_graph *graph;
  cvy_net *net;
  cvy_onnx_value *values;
  size_t n_values;
  int *index; /* hash of the name → value; slots of them, -1: free */
  size_t n_slots;
  cvy_onnx_label *labels; /* sorted by text */
  size_t n_labels;
  cvy_onnx_weight *weights;
  size_t n_weights, weights_capacity;
  const cvy_onnx_node *node;    /* being taken */
  bool last;                    /* of what the node makes, unless it says otherwise */
  cvy_onnx_formula *formulas;   /* all of them */
  int visit;                    /* number of the last search in them */
  cvy_onnx_channels *channels;  /* all of them */
  struct cvy_onnx_notes *notes; /* PyTorch's exporter's (onnx_exporter.h) */
  int64_t samples;              /* of the input as the file has it, where shapes in the file repeat it; 0: open */
  bool has_torch_names;         /* names of PyTorch's parameters */
  bool has_weights;             /* initialisers that are weights: not all come from Constant nodes */
  bool has_training_norms;      /* a normalisation is there as for training: others without that are fixed */
  cvy_ending ending;            /* a LogSoftmax that was left out */
  int n_refused, n_lasting;     /* of them: that no other export of the same network changes */
  char no_momentum[64];         /* a normalisation whose momentum is not known; "": none */
  int n_dropouts, n_unnamed, n_put_back, n_fixed; /* to be logged at the end */
  cvy_status status;                              /* first failure of another kind: the import ends */
} cvy_onnx_import_state;

/* [onnx_import.c] */
cvy_onnx_value *cvy_onnx_find(const cvy_onnx_import_state *im, const char *name);
/* Logs "F.onnx: node 'x' (Conv): …"; always false. */
bool cvy_onnx_refuse(cvy_onnx_import_state *im, const char *format, ...) CVY_PRINTF(2, 3);
/* Its own name, or its first output's. */
const char *cvy_onnx_node_name(const cvy_onnx_node *n);

/* [onnx_formula.c] Takes im->node if it is a function of one tensor's numbers, each by itself, and no layer: true. */
bool cvy_onnx_try_formula(cvy_onnx_import_state *im);
void cvy_onnx_take_formula(cvy_onnx_import_state *im);
/* A value that is a formula becomes a layer; false: refused. */
bool cvy_onnx_make_formula(cvy_onnx_import_state *im, cvy_onnx_value *v);
/* Input i, one number of the file; `absent` if there is no such input. False: refused. */
bool cvy_onnx_number(cvy_onnx_import_state *im, size_t i, const char *what, double absent, double *out);

/* [onnx_known.c] Takes im->node if all that it reads is known when the file is read, and there is a row for its
 * operator: true. */
bool cvy_onnx_try_known(cvy_onnx_import_state *im);
/* The node reads nothing but tensors of the file and whole numbers that are computed from them. */
bool cvy_onnx_is_known(const cvy_onnx_import_state *im, const cvy_onnx_node *n);
/* The tensor of the file that v is another shape or type of; v itself, if it is none. */
static inline cvy_onnx_value *cvy_onnx_root(cvy_onnx_value *v) { return v->root ? v->root : v; }

/* [onnx_constants.c] Reads the file's words on its tensors; after the needed ones are known. */
void cvy_onnx_read_origins(cvy_onnx_import_state *im);
/* Whether the file has weights as initialisers; behind what depends on the file alone. */
void cvy_onnx_find_weights(cvy_onnx_import_state *im);
/* A name that a state_dict may have: no program's own ("onnx::Mul_25", "17", "/1/Constant_output_0"). Pure. */
bool cvy_onnx_is_parameters_name(const char *name);
/* The tensor is an initialiser with such a name. */
bool cvy_onnx_has_name(const cvy_onnx_value *v);
bool cvy_onnx_is_constant(cvy_onnx_import_state *im, const cvy_onnx_value *v, cvy_onnx_use use);
/* Of a number for each channel that the operator op adds and so on; on_pictures: nothing but constants in front. */
cvy_onnx_role cvy_onnx_role_of(cvy_onnx_import_state *im, const cvy_onnx_value *v, const char *op, bool on_pictures);
/* For convoy net, and of a buffer its value for weights files. */
void cvy_onnx_note(cvy_onnx_import_state *im, const cvy_onnx_value *v, bool fixed);
/* The weight (0) or bias (1) of the new layer `node`, whose value was added under the layer's name, is v: a constant,
 * or a parameter that gets its own name. */
void cvy_onnx_settle(cvy_onnx_import_state *im, cvy_node node, int which, const cvy_onnx_value *v, cvy_onnx_use use,
                     bool fixed);

/* [onnx_ending.c] The network ends; *output is the node to finish it with. */
cvy_status cvy_onnx_take_end(cvy_onnx_import_state *im, cvy_onnx_value *output, cvy_node *out);

/* [onnx_channels.c] Takes im->node if it multiplies each channel by a number of the file, or adds one: true. */
bool cvy_onnx_try_channels(cvy_onnx_import_state *im);
/* A value that is CHANNELS becomes a layer, or part of the one in front; false: the import fails. */
bool cvy_onnx_make_channels(cvy_onnx_import_state *im, cvy_onnx_value *v);
/* A layer that multiplies everything that x makes by a number, which is not trained; -1: the import fails. */
cvy_node cvy_onnx_multiply(cvy_onnx_import_state *im, cvy_node x, float number, const char *name);
/* The parameter LAYER.SUFFIX of the list; NULL: none. */
cvy_onnx_weight *cvy_onnx_find_weight(const cvy_onnx_import_state *im, const char *layer, const char *suffix);

/* [onnx_order.c] Take im->node, which gives a tensor of samples another shape, or depends on which it has. */
void cvy_onnx_take_flatten(cvy_onnx_import_state *im);
void cvy_onnx_take_mean(cvy_onnx_import_state *im);
void cvy_onnx_take_reshape(cvy_onnx_import_state *im);
void cvy_onnx_take_softmax(cvy_onnx_import_state *im);
void cvy_onnx_take_squeeze(cvy_onnx_import_state *im);
void cvy_onnx_take_transpose(cvy_onnx_import_state *im);

/* [onnx_whole.c] Take im->node, which computes a shape or the like. */
void cvy_onnx_take_cast(cvy_onnx_import_state *im);
void cvy_onnx_take_constant_of_shape(cvy_onnx_import_state *im);
void cvy_onnx_take_gather(cvy_onnx_import_state *im);
void cvy_onnx_take_shape(cvy_onnx_import_state *im);
void cvy_onnx_take_slice(cvy_onnx_import_state *im);
void cvy_onnx_take_unsqueeze(cvy_onnx_import_state *im);
/* The same for operators that have another meaning as well; false: it is that one. */
bool cvy_onnx_take_wholes(cvy_onnx_import_state *im); /* Add, Div, Mul, Sub */
bool cvy_onnx_reshape_whole(cvy_onnx_import_state *im);
bool cvy_onnx_transpose_whole(cvy_onnx_import_state *im, const cvy_onnx_value *x);

/* [onnx_pointwise.c] Take im->node, an operator of this kind. */
void cvy_onnx_take_add(cvy_onnx_import_state *im);
void cvy_onnx_take_mul(cvy_onnx_import_state *im);
void cvy_onnx_take_difference(cvy_onnx_import_state *im);
void cvy_onnx_take_sum(cvy_onnx_import_state *im);
void cvy_onnx_take_relu(cvy_onnx_import_state *im);
void cvy_onnx_take_activation(cvy_onnx_import_state *im);
void cvy_onnx_take_clip(cvy_onnx_import_state *im);
void cvy_onnx_take_dropout(cvy_onnx_import_state *im);
void cvy_onnx_take_concat(cvy_onnx_import_state *im);

/* [onnx_nodes.c] Takes im->node, whose outputs the caller has marked BAD. */
void cvy_onnx_take_node(cvy_onnx_import_state *im);
/* A parameter LAYER.SUFFIX with the value of v, or without one; NULL: the memory is short. */
cvy_onnx_weight *cvy_onnx_add_weight(cvy_onnx_import_state *im, const cvy_onnx_value *v, const char *layer,
                                     const char *suffix);
/* The name of a layer whose weight has this name: without ".weight", and with '_' for what a name may not have. */
void cvy_onnx_layer_name(const char *tensor, char out[64]);
/* The value whose name the node's layer gets; NULL: there is none. `weight`: the input that is its weight. */
cvy_onnx_value *cvy_onnx_names_layer(const cvy_onnx_import_state *im, const cvy_onnx_node *node, size_t weight);
/* The input of a node that is a layer's weight; -1: it has none. Pure. */
int cvy_onnx_weight_input(const cvy_onnx_node *node);

#endif

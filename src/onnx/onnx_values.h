/* SPDX-License-Identifier: MIT
 * An import under way: the values that the names of a graph stand for. A node that cannot be taken is refused with a
 * message and the import goes on, so that all of them are named; nodes that depend on it are left out without one. */
#ifndef CVY_ONNX_ONNX_VALUES_H
#define CVY_ONNX_ONNX_VALUES_H

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
  CVY_ONNX_GROUPS,   /* one whose channels are two dimensions, groups and channels of one */
  CVY_ONNX_FORMULA,  /* a number of each number of a tensor of samples; it becomes a layer when a node needs it */
  CVY_ONNX_CHANNELS, /* one with each channel times a number, plus a number; likewise */
  CVY_ONNX_TENSOR,   /* numbers of the file */
  CVY_ONNX_ARRAY     /* numbers that nodes computed of the file and of shapes alone (onnx_array.h) */
} cvy_onnx_kind;

enum { CVY_ONNX_PLACES = 20, CVY_ONNX_WHOLE_MOST = 8 };
/* Whole numbers that stand for the batch's size, and for one that depends on it in another way; no exporter writes them
 * as ends of a Slice, as it does the smallest number. */
#define CVY_ONNX_BATCH (INT64_MIN / 4 * 3 + 1)
#define CVY_ONNX_OPEN (INT64_MIN / 4 * 3 + 2)
static inline bool cvy_onnx_is_open(int64_t x) { return x == CVY_ONNX_BATCH || x == CVY_ONNX_OPEN; }

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

struct cvy_onnx_import_state;

/* The value that a name stands for. */
typedef struct cvy_onnx_value {
  const char *name;  /* the file's */
  const char *label; /* of a TENSOR: the name of its layer */
  const char *title; /* of a TENSOR: the name of what a Reshape or the like has shaped */
  cvy_onnx_kind kind;
  bool needed;   /* the output depends on it */
  int n_readers; /* nodes that need it */
  int reader;    /* the last of them */
  cvy_node node; /* NODE, PADDED, GROUPS; CHANNELS: in front of them */
  bool flat;     /* of samples: (samples, values) instead of (samples, channels, rows, columns) */
  bool last;     /* of samples: channels come behind rows and columns; with flat, so lie the values */
  bool tokens;   /* of samples: rows and columns are one dimension, (samples, channels, pixels); not with flat */
  bool sole;     /* NODE, CHANNELS: one node reads it, and nothing else its layer */
  const cvy_onnx_tensor *tensor;
  struct cvy_onnx_value *root;       /* TENSOR: of another shape or type: the one of the file; NULL: it is that one */
  bool transposed;                   /* TENSOR: a matrix, rows and columns swapped */
  bool used;                         /* TENSOR: it is a layer's parameter already */
  bool by_node;                      /* TENSOR: a Constant node made it */
  cvy_onnx_said said;                /* TENSOR */
  bool temporary;                    /* TENSOR: a buffer that no state_dict holds */
  bool computed;                     /* TENSOR: made of parameters by the exporter, under any name */
  int n_view;                        /* TENSOR: dimensions that nodes gave it, before it is swapped; 0: its own */
  int64_t view[CVY_ONNX_WHOLE_MOST]; /* these */
  int pad[4];                        /* PADDED: rows above, columns left, rows below, columns right; else 0 */
  int groups;                        /* GROUPS: how many */
  bool swapped;                      /* GROUPS: the channels of one come before the groups */
  bool in_rows;                      /* GROUPS: channels of one, rows and columns are one dimension */
  /* FORMULA, CHANNELS: the value becomes a layer, and a NODE; false: the node is refused, or the import fails */
  bool (*make)(struct cvy_onnx_import_state *im, struct cvy_onnx_value *v);
  struct cvy_onnx_formula *formula;   /* FORMULA */
  struct cvy_onnx_channels *channels; /* CHANNELS */
  struct cvy_onnx_array *array;       /* ARRAY; a TENSOR's numbers, where nodes have computed with them; else NULL */
} cvy_onnx_value;

/* A function of the numbers of one layer, each by itself, known by its values at a few places. */
typedef struct cvy_onnx_formula {
  struct cvy_onnx_formula *next; /* made before */
  cvy_node of, made;             /* its layer; -1: none yet */
  bool flat, refused;
  enum {
    CVY_ONNX_NO_LAYER,
    CVY_ONNX_ACTIVATION,
    CVY_ONNX_SUM,
    CVY_ONNX_PRODUCT,
    CVY_ONNX_SQUARE
  } step;                         /* the last one, as a layer */
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
  const cvy_onnx_node *node;     /* being taken */
  bool last, tokens;             /* of what the node makes, unless it says otherwise */
  cvy_onnx_formula *formulas;    /* all of them */
  int visit;                     /* number of the last search in them */
  cvy_onnx_channels *channels;   /* all of them */
  struct cvy_onnx_array *arrays; /* all of them */
  size_t n_array_numbers;        /* that they hold */
  struct cvy_onnx_notes *notes;  /* PyTorch's exporter's (onnx_exporter.h) */
  int64_t samples;               /* of the input as the file has it, where shapes in the file repeat it; 0: open */
  bool has_torch_names;          /* names of PyTorch's parameters */
  bool has_weights;              /* initialisers that are weights: not all come from Constant nodes */
  bool has_training_norms;       /* a normalisation is there as for training: others without that are fixed */
  cvy_ending ending;             /* a LogSoftmax that was left out */
  int n_refused, n_lasting;      /* of them: that no other export of the same network changes */
  char no_momentum[64];          /* a normalisation whose momentum is not known; "": none */
  int n_dropouts, n_unnamed, n_put_back, n_fixed; /* to be logged at the end */
  cvy_status status;                              /* first failure of another kind: the import ends */
} cvy_onnx_import_state;

/* In the files of the importer. */
typedef cvy_onnx_import_state state;
typedef cvy_onnx_value value;

/* Names of initialisers and of what each node makes: im->values; a name that two of them have is an error, and more
 * of them than a file may have. CVY_E_FORMAT · CVY_E_UNSUPPORTED · CVY_E_MEMORY. */
cvy_status cvy_onnx_list_values(cvy_onnx_import_state *im);
/* A new value, or NULL: there is one of that name. There is room for all names of the file. */
cvy_onnx_value *cvy_onnx_add_value(cvy_onnx_import_state *im, const char *name);
cvy_onnx_value *cvy_onnx_find(const cvy_onnx_import_state *im, const char *name);
/* The one output of the graph → *output, and from it back which values it needs. CVY_E_FORMAT · CVY_E_UNSUPPORTED. */
cvy_status cvy_onnx_find_needed(cvy_onnx_import_state *im, cvy_onnx_value **output);
/* The output of the graph depends on an output of the node. */
bool cvy_onnx_makes_needed(const cvy_onnx_import_state *im, const cvy_onnx_node *n);
/* Logs "F.onnx: node 'x' (Conv): …"; always false. */
bool cvy_onnx_refuse(cvy_onnx_import_state *im, const char *format, ...) CVY_PRINTF(2, 3);
/* Its own name, or its first output's. */
const char *cvy_onnx_node_name(const cvy_onnx_node *n);
bool cvy_onnx_is_norm(const cvy_onnx_node *n); /* a BatchNormalization */
/* NAME of "NAME.weight", with `end` ".weight": its length; 0: the name has another end, or nothing in front. Pure. */
size_t cvy_onnx_stem(const char *name, const char *end);
#define CVY_ONNX_MEAN ".running_mean"
/* The tensor of the file that v is another shape or type of; v itself, if it is none. */
static inline cvy_onnx_value *cvy_onnx_root(cvy_onnx_value *v) { return v->root ? v->root : v; }
/* "" for a string that the file does not have. */
static inline const char *cvy_onnx_text(const char *text) { return text ? text : ""; }

#endif

// RUN: mlir-runner %s -e main | FileCheck %s
// A main of several blocks, loops of the affine dialect and a global of one number: every executor runs them alike.
memref.global "private" @g : memref<6xf32> = dense<1.5>
func.func private @printMemrefF32(memref<*xf32>) attributes {llvm.emit_c_interface}
func.func @main() attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %a = memref.get_global @g : memref<6xf32>
  affine.for %i = 0 to 2 {
    affine.for %j = 0 to 2 {
      %x = affine.apply affine_map<(d0, d1) -> (d0 * 3 + d1)>(%i, %j)
      %n = arith.index_cast %x : index to i32
      %f = arith.sitofp %n : i32 to f32
      affine.store %f, %a[%i * 2 + %j] : memref<6xf32>
    }
  }
  cf.br ^loop(%c0 : index)
^loop(%k: index):
  %go = arith.cmpi slt, %k, %c1 : index
  cf.cond_br %go, ^body, ^done
^body:
  %next = arith.addi %k, %c1 : index
  cf.br ^loop(%next : index)
^done:
  %u = memref.cast %a : memref<6xf32> to memref<*xf32>
  // CHECK: [0,  1,  3,  4,  1.5,  1.5]
  call @printMemrefF32(%u) : (memref<*xf32>) -> ()
  return
}
